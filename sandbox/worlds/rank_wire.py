"""The referee's connection to one rank: control socket, printed text and report page."""

import contextlib
import fcntl
import math
import mmap
import os
import socket
import struct
import sys
import termios
import time
from collections import deque
from typing import Any, NamedTuple

from sandbox.memory import host as memory
from sandbox.protocol import frames, messages
from sandbox.protocol.frames import FAILURES, Kind
from sandbox.protocol.messages import REPLIES, Order, decode_reply
from sandbox.worlds.failures import WorldFailed

OUTPUT_KEPT = 256 << 10
"""Bytes of a rank's prints that are reported."""
OUTPUT_FATAL = 64 << 20
"""Bytes of prints that fail the world."""
RECEIVED = 64 << 10
"""Most bytes that are read at once."""
MOST_FRAMES = 1024
MOST_COMPILATIONS = 10_000
"""Beginnings and ends of compilations that a rank may report. Each becomes an event of the run's journal."""
SAID = 16_000
"""Last characters of a rank's prints that are kept for the message of a failure."""
SEND_SECONDS = 5.0


class Received(NamedTuple):
    """An answer of a rank: a number, and from a trusted rank the reply with its descriptors."""

    kind: Kind
    value: int
    reply: Any
    fds: list[int]


class RankEnds(NamedTuple):
    """The descriptors of a rank's process."""

    sock: int
    report: int
    pipe: int


class RankWire:
    """The connection to one rank. Only `send` can block, on a full socket."""

    def __init__(self, rank: int, trusted: bool, sock: socket.socket, pipe: int, report: mmap.mmap | bytearray) -> None:
        """pipe: the reading end of the rank's prints. Only a trusted rank's replies are decoded."""
        self.rank = rank
        self.trusted = trusted
        self.sock = sock
        self.pipe = pipe
        self.status: int | None = None
        """The wait status of a rank that has ended."""
        self.closed_at = math.inf
        """When its socket was closed (time.monotonic)."""
        self.answers: deque[Received] = deque()
        self._report = report
        self._buffer = bytearray()
        self._fds: list[int] = []
        self._printed = 0
        self.said = ""
        """The end of its prints."""
        self._of_compiling = 0

    @classmethod
    def connect(cls, rank: int, trusted: bool) -> tuple["RankWire", RankEnds]:
        """A wire and its other ends. Raises OSError and leaves nothing open."""
        with contextlib.ExitStack() as undo:
            mine, other = socket.socketpair()
            undo.callback(mine.close)
            undo.callback(other.close)
            read, write = os.pipe()
            undo.callback(os.close, read)
            undo.callback(os.close, write)
            os.set_blocking(read, False)
            mine.setblocking(False)
            report_fd, report = memory.output_arena(memory.REPORT_BYTES, "pkb-report")
            undo.pop_all()
        return cls(rank, trusted, mine, read, report), RankEnds(other.detach(), report_fd, write)

    @property
    def has_read_all(self) -> bool:
        """Whether the rank has read everything that was sent to it (unix(7), SIOCOUTQ)."""
        unread = fcntl.ioctl(self.sock, termios.TIOCOUTQ, bytes(4))
        return int.from_bytes(unread, sys.byteorder) == 0

    @property
    def calls_begun(self) -> int:
        """The number of calls that the rank reports to have begun in a batch."""
        return int.from_bytes(self._report[memory.BEGUN_AT : memory.BEGUN_AT + 8], sys.byteorder)

    # --- from the rank ---------------------------------------------------------------------------------------

    def read(self) -> list[Received] | None:
        """Reads what has arrived and keeps answers. Returns messages about compilation; None if the socket is closed.

        Raises WorldFailed for bytes that no rank sends.
        """
        try:
            data, fds, _, _ = socket.recv_fds(self.sock, RECEIVED, 8)
        except BlockingIOError:
            return []
        except OSError:
            data, fds = b"", []
        if self.trusted:
            self._fds += fds
        else:
            for fd in fds:
                os.close(fd)
        if not data:
            self.close_line()
            return None
        return self.take_in(data)

    def close_line(self) -> None:
        """Records the time when the connection was closed."""
        self.closed_at = min(self.closed_at, time.monotonic())

    @property
    def closed(self) -> bool:
        """Whether its connection is closed."""
        return self.closed_at < math.inf

    @property
    def gone(self) -> bool:
        """Whether its connection is closed or its process has ended."""
        return self.closed or self.status is not None

    def take_in(self, data: bytes) -> list[Received]:
        """Does with these bytes what `read` does with those that have arrived."""
        self._buffer += data
        of_compiling = []
        while len(self._buffer) >= frames.SIZE:
            try:
                kind, _, value = frames.decode(bytes(self._buffer[: frames.SIZE]))
            except ValueError as error:
                self._buffer.clear()
                raise WorldFailed("PROTOCOL", self.rank, text=str(error)) from None
            size = frames.SIZE
            reply = None
            if self.trusted and kind in REPLIES:
                size += min(value, frames.MAX_PAYLOAD)
                if len(self._buffer) < size:
                    break
                reply = decode_reply(kind, bytes(self._buffer[frames.SIZE : size]))
            fds: list[int] = []
            if kind is Kind.MAKE_ARENAS:  # one read may also return answers from before the descriptors
                fds, self._fds = self._fds, []
            del self._buffer[:size]
            received = Received(kind, value, reply, fds)
            if kind in (Kind.COMPILING, Kind.COMPILED):
                of_compiling.append(received)
            else:
                self.answers.append(received)
        self._of_compiling += len(of_compiling)
        if len(self.answers) > MOST_FRAMES or self._of_compiling > MOST_COMPILATIONS:
            self.answers.clear()
            raise WorldFailed("PROTOCOL", self.rank, text="a rank sends too many frames")
        return of_compiling

    def read_prints(self) -> str | None:
        """The new printed text of the rank, up to a limit; None if its pipe is closed.

        Raises WorldFailed if the rank prints too much.
        """
        data, part = bytearray(), b"-"
        with contextlib.suppress(OSError):
            while part and len(data) < RECEIVED:
                part = os.read(self.pipe, RECEIVED)
                data += part
        if not data:
            return "" if part else None
        before = self._printed
        self._printed += len(data)
        if self._printed > OUTPUT_FATAL:
            raise WorldFailed("FLOOD", self.rank, text=f"rank {self.rank} printed more than {OUTPUT_FATAL >> 20} MiB")
        text = data[: max(0, OUTPUT_KEPT - before)].decode("utf-8", "replace")
        self.said = (self.said + text)[-SAID:]
        return text

    def failure(self) -> WorldFailed | None:
        """The failure that the rank's next answer reports, with its text."""
        if not self.answers or self.answers[0].kind not in FAILURES:
            return None
        answer = self.answers[0]
        line = answer.value if 0 < answer.value < 1 << 31 else 0
        return WorldFailed(answer.kind.name, self.rank, line, self.report())

    def report(self) -> str:
        """The text in the rank's report page: untrusted bytes, decoded and bounded."""
        page = self._report
        (length,) = struct.unpack("<I", page[:4])
        return bytes(page[4 : 4 + min(length, len(page) - 4)]).decode("utf-8", "replace")

    def unasked(self) -> str:
        """What the rank has sent without an order, except failures; empty if nothing."""
        with contextlib.suppress(OSError):
            if early := self.sock.recv(frames.SIZE, socket.MSG_PEEK):
                return f"sent {early.hex()} before it was asked"
        if self.answers and self.answers[0].kind not in FAILURES:
            return f"sent {self.answers[0].kind.name} before GO"
        return ""

    # --- to the rank -----------------------------------------------------------------------------------------

    def send(self, order: Order[Any], fds: tuple[int, ...] = ()) -> None:
        """Sends an order. A rank that is gone is no error here, because the wait for its answer raises the cause."""
        with contextlib.suppress(OSError):
            self.sock.settimeout(SEND_SECONDS)
            messages.send(self.sock, order, fds)
        with contextlib.suppress(OSError):
            self.sock.setblocking(False)

    def forget_answers(self) -> None:
        """Drops the answers that have arrived, and closes their descriptors."""
        for answer in self.answers:
            for fd in answer.fds:
                os.close(fd)
        self.answers.clear()

    def close(self) -> None:
        """Closes this end."""
        self.forget_answers()
        self.sock.close()
        os.close(self.pipe)
        if isinstance(self._report, mmap.mmap):
            self._report.close()
        for fd in self._fds:
            os.close(fd)
