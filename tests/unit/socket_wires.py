"""The wires of an untrusted world without processes: real sockets, whose other ends belong to the test."""

import contextlib
import os
import selectors
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from sandbox.protocol import frames
from sandbox.protocol.frames import Kind
from sandbox.worlds.rank_wire import RankWire
from sandbox.worlds.wires import Wires


@dataclass
class OtherEnds:
    """The ends that ranks and their launcher would hold."""

    ranks: list[socket.socket]
    launcher: socket.socket
    selector: selectors.BaseSelector
    reports: list[int]
    """Descriptors of the ranks' report pages."""
    pipes: list[int]
    """Descriptors of their prints."""
    printed: list[str]
    """What the referee has read of the ranks' prints."""

    def raises(self, rank: int, text: str) -> None:
        """Reports an exception as a rank does."""
        os.pwrite(self.reports[rank], struct.pack("<I", len(text)) + text.encode(), 0)
        self.ranks[rank].sendall(frames.encode(Kind.RAISED))
        self.serve()

    def serve(self) -> None:
        """Lets the wires read what has arrived."""
        while ready := self.selector.select(0):
            for key, _ in ready:
                key.data()


@contextlib.contextmanager
def wires_of() -> Iterator[tuple[Wires, OtherEnds]]:
    """The wires of two ranks, and their other ends."""
    with contextlib.ExitStack() as stack:
        wires, theirs, reports, pipes, printed = [], [], [], [], list[str]()
        for rank in range(2):
            wire, ends = RankWire.connect(rank, trusted=False)
            stack.callback(os.close, ends.report)
            reports.append(ends.report)
            stack.callback(os.close, ends.pipe)
            pipes.append(ends.pipe)
            theirs.append(stack.enter_context(socket.socket(fileno=ends.sock)))
            wires.append(wire)
        status, launcher = socket.socketpair()
        stack.enter_context(launcher)
        selector = stack.enter_context(selectors.DefaultSelector())
        made = Wires(wires, status, selector, lambda rank, text: printed.append(text))
        stack.callback(made.close)
        yield made, OtherEnds(theirs, launcher, selector, reports, pipes, printed)
