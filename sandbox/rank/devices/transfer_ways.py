"""Ways to move a block between two ranks, as a kind of device offers them to sandbox.rank.transfers."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from sandbox.kit.symmetric_memory.team import Team

SIGNAL_SLOT = 0
"""The slot of the pair's team whose signal says that a block is there."""
TURN_SECONDS = 5.0
"""Limit for a turn of the peer."""


@dataclass(frozen=True)
class Pair:
    """This rank's side of two ranks that move a block to each other in turns."""

    team: Team
    """Of the two."""
    ranks: tuple[int, int]
    """The rank that moves first, and the other."""
    rank: int
    own: torch.Tensor
    """uint8; only this rank has its address."""
    shared: torch.Tensor
    """uint8, of the same length; in symmetric memory."""

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
        """The first of so many numbers for the signals of the turns; both ranks get the same."""
        first = self.team.next_epoch()
        for _ in range(turns - 1):
            self.team.next_epoch()
        return first

    def by_host(self, turns: int, move: Callable[[], object]) -> None:
        """Turns whose moves and signals the host orders one by one."""
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
    """Messages of the process group."""
    for turn in range(turns):
        if pair.moves_in(turn):
            dist.send(pair.own[:nbytes], pair.peer)
        else:
            dist.recv(pair.shared[:nbytes], pair.peer)


@dataclass(frozen=True)
class Way:
    """A way to move a block."""

    run: Callable[[Pair, int, int], object]
    """Takes the pair, bytes and the number of turns; may return before they are done."""
    pulls: bool = False
    """Whether the mover reads the peer's `shared` into its `own`. Otherwise it writes its `own` to the peer's `shared`."""
    into: torch.Tensor | None = None
    """This rank's block that the peer writes to instead of `shared`."""


@dataclass(frozen=True)
class Ways:
    """What a kind of device offers."""

    largest: int
    """Bytes of the largest block."""
    ways: dict[str, Way]
    seconds: Callable[[Callable[[], object], Pair], float]
    """Runs turns to their end; their seconds on the rank that moves first, any number on the other."""
    backends: dict[str, Callable[[], Way]] = field(default_factory=dict)
    """Makes the ways of other libraries (collective). They raise ImportError or KitError where they are not there."""
