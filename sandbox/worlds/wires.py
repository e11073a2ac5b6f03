"""The referee's connections to all ranks of a world: answers, the first failure, and compile time."""

import contextlib
import re
import selectors
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from sandbox.protocol import frames
from sandbox.protocol.frames import Kind
from sandbox.protocol.messages import Go, Order
from sandbox.worlds.failures import WorldFailed
from sandbox.worlds.rank_wire import RankWire, Received

GO = frames.encode(Go.kind)
STATUS_SECONDS = 2.0
"""Limit from the end of a rank's connection to its wait status. A process closes its files first, which takes a GPU's driver up
to 1 s."""
PEER_SECONDS = 0.5
"""Limit from a failure that the end of a peer explains to the end of that peer's connection."""
PEER_ENDED = re.compile(r"gloo/transport/|ncclRemoteError")
"""Found in the text of an exception of a collective whose connection to a peer broke."""


class Wires:
    """The wires of a world, served by a selector. status: the socket on which the launcher reports the ends of ranks."""

    def __init__(
        self,
        ranks: Sequence[RankWire],
        status: socket.socket,
        selector: selectors.BaseSelector,
        heard: Callable[[int, str], None],
    ) -> None:
        """heard(rank, text): called with the printed text of a rank. More than 64 MiB of it fail the world."""
        self.ranks = ranks
        self.failure: WorldFailed | None = None
        """The failure of the world. `missing` raises it for any answer."""
        self._lost: RankWire | None = None
        """The first rank whose connection or process ended before any rank reported a failure of its own."""
        self._explained_until: float | None = None
        """Until when a peer's end is waited for, which may explain a failure (time.monotonic)."""
        self._launcher_ended = False
        self._status = status
        self._selector = selector
        self._heard = heard
        self._compiling: set[int] = set()
        self._compiled = 0.0
        """Seconds of compilation that has ended."""
        self._compiling_since = 0.0
        """When the first of the ranks that are compiling now began (time.monotonic)."""
        self._watch_compiling: Callable[[bool], None] | None = None
        status.setblocking(False)
        selector.register(status, selectors.EVENT_READ, self._read_status)
        for wire in ranks:
            selector.register(wire.sock, selectors.EVENT_READ, partial(self._read, wire))
            selector.register(wire.pipe, selectors.EVENT_READ, partial(self._read_prints, wire))

    def said_by(self, rank: int) -> str:
        """The end of a rank's prints."""
        return self.ranks[rank].said

    def fail(self, failure: WorldFailed) -> None:
        """Fails the world. The first reason counts."""
        self.failure = self.failure or failure

    @property
    def compile_seconds(self) -> float:
        """Seconds in which any rank was compiling, as the ranks report."""
        return self._compiled + (time.monotonic() - self._compiling_since if self._compiling else 0.0)

    def watch_compiling(self, watcher: Callable[[bool], None] | None) -> None:
        """Sets watcher(active), which is called when the first rank starts to compile and when the last has ended."""
        self._watch_compiling = watcher

    # --- orders ----------------------------------------------------------------------------------------------

    def send(self, orders: Sequence[Order[Any]], fds: Sequence[tuple[int, ...]] | None = None) -> None:
        """Sends each rank its order with descriptors."""
        for rank, wire in enumerate(self.ranks):
            wire.send(orders[rank], fds[rank] if fds else ())

    def release(self, ranks: Sequence[int] | None = None) -> None:
        """Sends GO to these ranks, or to all, without a delay between them."""
        for wire in self.ranks if ranks is None else [self.ranks[rank] for rank in ranks]:
            with contextlib.suppress(OSError):
                wire.sock.send(GO)

    def calls_begun(self) -> list[int]:
        """By rank, the number of calls of the batch that have begun, as the rank reports."""
        return [wire.calls_begun for wire in self.ranks]

    def has_begun(self, rank: int) -> bool:
        """Whether a rank has read the GO that was sent to it."""
        return self.ranks[rank].has_read_all

    # --- what arrives --------------------------------------------------------------------------------------

    def _read(self, wire: RankWire) -> None:
        try:
            of_compiling = wire.read()
        except WorldFailed as failure:
            self.fail(failure)
            return
        if of_compiling is None:
            self._selector.unregister(wire.sock)
            self._note_lost(wire)
            return
        for answer in of_compiling:
            self._note_compiling(wire.rank, answer.kind is Kind.COMPILING)

    def _note_lost(self, wire: RankWire) -> None:
        if self._lost is None and wire.failure() is None and all(map(_follows, self._failures())):
            self._lost = wire

    def _failures(self) -> list[WorldFailed]:
        """The ranks' failures; last those that the end of a peer may explain."""
        return sorted((failure for wire in self.ranks if (failure := wire.failure())), key=_follows)

    def _note_compiling(self, rank: int, active: bool) -> None:
        before = bool(self._compiling)
        (self._compiling.add if active else self._compiling.discard)(rank)
        if before == bool(self._compiling):
            return
        if before:
            self._compiled += time.monotonic() - self._compiling_since
        else:
            self._compiling_since = time.monotonic()
        if self._watch_compiling is not None:
            self._watch_compiling(not before)

    def _read_prints(self, wire: RankWire) -> None:
        try:
            text = wire.read_prints()
        except WorldFailed as failure:
            self.fail(failure)
            return
        if text is None:
            self._selector.unregister(wire.pipe)
        elif text:
            self._heard(wire.rank, text)

    def _read_status(self) -> None:
        try:
            data = self._status.recv(4096)
        except BlockingIOError:
            return
        if not data:
            self._selector.unregister(self._status)
            self._launcher_ended = True
            for wire in self.ranks:
                wire.close_line()
        for at in range(0, len(data) - frames.SIZE + 1, frames.SIZE):
            with contextlib.suppress(ValueError):
                _, rank, status = frames.decode(data[at : at + frames.SIZE])
                if rank < len(self.ranks):
                    wire = self.ranks[rank]
                    wire.status = status
                    self._note_lost(wire)

    @contextlib.contextmanager
    def unheard(self) -> Iterator[None]:
        """Leaves unread, within a block, what the ranks send and print. Reading takes time while another world is timed."""
        held = []
        for wire in self.ranks:
            for source in (wire.sock, wire.pipe):
                with contextlib.suppress(KeyError, ValueError):
                    held.append((wire, self._selector.unregister(source)))
        try:
            yield
        finally:  # timing may start again after an exception
            for wire, key in held:
                if wire.sock.fileno() >= 0:
                    self._selector.register(key.fileobj, key.events, key.data)

    # --- what is awaited -------------------------------------------------------------------------------------

    def missing(self, kind: Kind, ended: Callable[[], str]) -> list[int]:
        """Ranks whose next answer is missing. Raises WorldFailed if a rank sent something else or is gone.

        The earliest cause counts: a rank that reports a failure explains why others are silent.
        ended(): why the operating system has killed the world, in one line; else empty.
        """
        if self.failure is not None:
            raise self.failure
        if self._lost is not None and not self._lost.answers:
            if not self._has_status(self._lost):
                return [self._lost.rank]
            raise self._died(self._lost, ended)
        if failures := self._failures():
            if _follows(failures[0]) and (silent := self._silent_peers()):
                return silent
            raise failures[0]
        waiting = []
        for wire in self.ranks:
            if wire.answers:
                said = wire.answers[0].kind
                if said is kind:
                    continue
                raise WorldFailed("PROTOCOL", wire.rank, text=f"sent {said.name} where {kind.name} was due")
            if wire.gone and self._has_status(wire):
                raise self._died(wire, ended)
            waiting.append(wire.rank)
        return waiting

    def _silent_peers(self) -> list[int]:
        """Ranks without an answer whose end may still be reported; none after PEER_SECONDS."""
        if self._explained_until is None:
            self._explained_until = time.monotonic() + PEER_SECONDS
        if time.monotonic() > self._explained_until:
            return []
        return [wire.rank for wire in self.ranks if not wire.answers]

    def _died(self, wire: RankWire, ended: Callable[[], str]) -> WorldFailed:
        """The failure of a rank that is gone. First passes on its last printed text, which shows where it ended.

        ended(): see `missing`.
        """
        while text := wire.read_prints():
            self._heard(wire.rank, text)
        if why := ended():
            return WorldFailed("NO_MEMORY", wire.rank, text=why)
        return WorldFailed("DIED", wire.rank, status=-1 if wire.status is None else wire.status)

    def _has_status(self, wire: RankWire) -> bool:
        """Whether the wait status of a rank is known, or will never be."""
        return wire.status is not None or self._launcher_ended or time.monotonic() - wire.closed_at > STATUS_SECONDS

    def take(self) -> list[Received]:
        """Takes the awaited answer of every rank."""
        return [wire.answers.popleft() for wire in self.ranks]

    def take_synced(self, number: int) -> bool:
        """Drops all answers up to the `Sync` with this number. Returns False if a rank has not answered it yet.

        Raises WorldFailed if a rank is gone.
        """
        for wire in self.ranks:
            if wire.closed or self.failure:
                raise self.failure or WorldFailed("DIED", wire.rank, status=-1)
        found = all(
            any(answer.kind is Kind.SYNC and answer.reply == number for answer in wire.answers) for wire in self.ranks
        )
        if found:
            for wire in self.ranks:
                wire.forget_answers()
        return found

    def require_silence(self) -> None:
        """Fails the world if a rank sent an answer without an order, because a DONE before GO would end a batch at once."""
        for wire in self.ranks:
            if early := wire.unasked():
                self.fail(WorldFailed("PROTOCOL", wire.rank, text=early))

    def close(self) -> None:
        """Closes all wires."""
        for wire in self.ranks:
            for key in (wire.sock, wire.pipe):
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(key)
            wire.close()
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(self._status)
        self._status.close()


def _follows(failure: WorldFailed) -> bool:
    """Whether the end of a peer may explain a failure."""
    return PEER_ENDED.search(failure.text) is not None
