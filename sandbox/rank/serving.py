"""The loop in which a rank answers the referee, and the page in which it leaves what went wrong."""

import os
import socket
import struct
from collections.abc import Callable
from typing import Any

from sandbox.memory import host as memory
from sandbox.protocol import frames, wire
from sandbox.protocol.frames import Kind
from sandbox.protocol.messages import Order
from sandbox.rank.kernel.traceback import stand_in

TEXT_LIMIT = 60_000
leave = os._exit
"""Ends this process at once; a kernel's call of the same name also tells where it was made."""


class Reported(Exception):
    """A failure that was sent to the referee already."""


class Serving:
    """One rank's end of its control socket. Subclasses add handlers, and say what an exception of theirs means."""

    def __init__(self, sock: socket.socket, report: int) -> None:
        """report: descriptor of the page for failure texts."""
        self.sock = sock
        self.report = memory.map_output(report)
        self.handlers: dict[type[Order], Callable[[Any, list[int]], None]] = {}
        """By the struct of an order: what is called with it and the descriptors that came with it."""

    def serve(self) -> None:
        """Answers the referee until it hangs up."""
        self.say(Kind.READY, os.getpid())
        while True:
            try:
                order, fds = wire.receive(self.sock)
            except (EOFError, ConnectionError):
                leave(0)
            try:
                self.handlers[type(order)](order, fds)
            except Reported:
                pass
            except BaseException as error:
                self.tell(error)

    def say(self, kind: int, value: int = 0) -> None:
        """Sends a bare frame."""
        self.sock.sendall(frames.encode(kind, 0, value))

    def fail(self, kind: int, text: str, line: int = 0) -> None:
        """Leaves a text in the report page and says what kind of failure it is."""
        data = text.encode("utf-8", "replace")[:TEXT_LIMIT]
        self.report[4 : 4 + len(data)] = data
        self.report[:4] = struct.pack("<I", len(data))
        self.say(kind, line)

    def tell(self, error: BaseException) -> None:
        """Blames an exception, whatever it is: one whose own methods fail by its name and its place."""
        try:
            self.blame(error)
        except BaseException:
            self.blame(stand_in(error))

    def blame(self, error: BaseException) -> None:
        """Says what an exception out of a handler means."""
        raise NotImplementedError
