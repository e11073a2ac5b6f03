"""Ways to move a block between two ranks, as a kind of device offers them to sandbox.rank.transfers."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from sandbox.kit.symmetric_memory.team import Team

SIGNAL_SLOT = 0
"""The slot of the pair's team for signals that a block has arrived."""
TURN_SECONDS = 5.0
"""Limit for a turn of the other rank, in seconds."""


@dataclass(frozen=True)
class Pair:
    """This rank's side of two ranks that move a block to each other in turns."""

    team: Team
    """The team of the two ranks."""
    ranks: tuple[int, int]
    """The rank that moves first, and the other."""
    rank: int
    own: torch.Tensor
    """This rank's block, uint8. The other rank cannot address it."""
    shared: torch.Tensor
    """This rank's block in symmetric memory, uint8, of the same length."""

    @property
    def first(self) -> bool:
        """Whether this rank moves first."""
        return self.rank == self.ranks[0]

    @property
    def peer(self) -> int:
        """The other rank."""
        return self.ranks[1] if self.first else self.ranks[0]

    @property
    def peer_member(self) -> int:
        """The other rank's place in the team."""
        return 1 - self.team.rank

    def moves_in(self, turn: int) -> bool:
        """Whether this rank moves the block of a turn."""
        return (turn % 2 == 0) == self.first

    def there(self, nbytes: int) -> torch.Tensor:
        """The first bytes of the peer's `shared`."""
        return self.team.peers(self.shared[:nbytes])[self.peer_member]

    def epochs(self, turns: int) -> int:
        """Reserves a signal number for each turn. Returns the first one, which is the same on both ranks."""
        first = self.team.next_epoch()
        for _ in range(turns - 1):
            self.team.next_epoch()
        return first

    def by_host(self, turns: int, move: Callable[[], object]) -> None:
        """Makes the turns. The host orders each move and each signal."""
        epoch = self.epochs(turns)
        for turn in range(turns):
            if self.moves_in(turn):
                move()
                self.team.signal(self.peer_member, SIGNAL_SLOT, epoch + turn)
            else:
                self.team.wait(self.peer_member, SIGNAL_SLOT, epoch + turn, TURN_SECONDS)


def store(pair: Pair, nbytes: int, turns: int) -> None:
    """Copies to the peer's `shared`."""
    to, source = pair.there(nbytes), pair.own[:nbytes]
    pair.by_host(turns, lambda: to.copy_(source))


def send(pair: Pair, nbytes: int, turns: int) -> None:
    """Sends the block as a message of the process group."""
    for turn in range(turns):
        if pair.moves_in(turn):
            dist.send(pair.own[:nbytes], pair.peer)
        else:
            dist.recv(pair.shared[:nbytes], pair.peer)


@dataclass(frozen=True)
class Way:
    """A way to move a block."""

    run: Callable[[Pair, int, int], object]
    """Called with the pair, the bytes and the number of turns. It may return before the turns are done."""
    pulls: bool = False
    """Whether the mover reads the peer's `shared` into its `own`. Otherwise it writes its `own` to the peer's `shared`."""
    into: torch.Tensor | None = None
    """This rank's block to which the other rank writes instead of `shared`."""


@dataclass(frozen=True)
class Ways:
    """The ways that a kind of device offers."""

    largest: int
    """Bytes of the largest block."""
    ways: dict[str, Way]
    seconds: Callable[[Callable[[], object], Pair], float]
    """Runs turns to their end. Returns their seconds on the rank that moves first, and any number on the other."""
    backends: dict[str, Callable[[], Way]] = field(default_factory=dict)
    """Makes the ways of other libraries (collective). Each raises ImportError or KitError if its library is missing."""
