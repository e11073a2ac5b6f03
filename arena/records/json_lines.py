"""Files of JSON lines: the only writer and reader of every journal.

A line is whole if it ends with a line break. What a crash or a full disk left of a line is removed before the next one. A file
that cannot be read or opened raises OSError.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

import msgspec

from arena.paths import make_folder, writing
from sandbox.machine.locked_folder import open_plain

Line = TypeVar("Line")

MOST_BYTES = 64 << 20
"""Longest line that is decoded. The kernel of a run, with all its files, is in one line."""
FOLLOW_BYTES = 4 << 20
"""Bytes after which `Follower.more` ends; reading them takes milliseconds."""
PENDING_BYTES = 16 << 20
"""Bytes kept in memory while the disk is full. Further events are missing in the journal, never in the run."""
_TAIL_BYTES = 1 << 16

encode = msgspec.json.Encoder().encode


def decoder(kind: Any) -> Callable[[bytes], Any]:
    """Returns a function that decodes lines of this type.

    It raises ValueError for every line that does not fit, also one that is nested too deeply or longer than MOST_BYTES.
    """
    decode = msgspec.json.Decoder(kind).decode

    def decode_line(data: bytes) -> Any:
        if len(data) > MOST_BYTES:
            raise ValueError(f"a line of more than {MOST_BYTES >> 20} MiB")
        try:
            return decode(data)
        except RecursionError:
            raise ValueError("a line that is nested too deeply") from None

    return decode_line


class LineFile:
    """A file open for appending lines."""

    def __init__(self, path: Path, lock: int = 0) -> None:
        """Opens or creates the file.

        lock: held until `close`: `LOCK_EX`, or `LOCK_EX | LOCK_NB` to not wait; 0: nobody else writes this file.

        Raises:
            BlockingIOError: another process has it.
        """
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if lock:
                flock(self._file, lock)
            self.size = _end_of_whole_lines(self._file)
            """Bytes of whole lines: the offset of the next line."""
            self._torn = self.size < os.fstat(self._file).st_size
        except BaseException:
            self.close()
            raise

    def append(self, line: bytes, sync: bool = True) -> None:
        """Writes an encoded line. sync: returns when it is on the disk, after milliseconds; else a power cut may lose it.

        Raises:
            OSError: it could not be written; no part of it is in the file.
        """
        try:
            if self._torn:
                self.cut(self.size)
            left = memoryview(line + b"\n")
            while left:  # a nearly full disk takes a part
                left = left[os.pwrite(self._file, left, self.size + len(line) + 1 - len(left)) :]
            if sync:
                os.fsync(self._file)
        except OSError:
            self._torn = True
            with suppress(OSError):
                self.cut(self.size)
            raise
        self.size += len(line) + 1

    def cut(self, size: int) -> None:
        """Removes everything from this offset on."""
        os.ftruncate(self._file, size)
        self.size, self._torn = size, False

    def close(self) -> None:
        """Closes the file, which also unlocks it. May be called twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _end_of_whole_lines(file: int) -> int:
    end = os.fstat(file).st_size
    while end:
        start = max(0, end - _TAIL_BYTES)
        if (at := os.pread(file, end - start, start).rfind(b"\n")) >= 0:
            return start + at + 1
        end = start
    return 0


def append_line(path: Path, line: msgspec.Struct) -> None:
    """Adds one line to a file that several processes write, and returns when it is on the disk.

    Raises:
        FolderUnwritable: it could not be written; the file has the lines that it had.
    """
    make_folder(path.parent)
    with writing(path.parent):
        file = LineFile(path, LOCK_EX)
        try:
            file.append(encode(line))
        finally:
            file.close()


class Journal:
    """Writes the events of a run, a duel or a model's trace to a file as they come. Killing this process loses none.

    Its methods raise no OSError: the first one, such as a full disk, is reported to `on_trouble`. Events are not synced
    one by one, because that takes milliseconds while a kernel is timed: `sync` does so at the end.
    """

    def __init__(self, path: Path, header: msgspec.Struct, on_trouble: Callable[[OSError], None]) -> None:
        self.path = path
        self._on_trouble = on_trouble
        self._reported = False
        self._pending: deque[bytes] = deque()
        self._held = 0
        """Bytes of the pending lines."""
        self._file: LineFile | None = None
        try:
            self._file = LineFile(path)
        except OSError as error:
            self._report(error)
        self.append(header)

    def append(self, event: msgspec.Struct) -> None:
        """Adds an event."""
        line = encode(event)
        if self._held + len(line) <= PENDING_BYTES:
            self._pending.append(line)
            self._held += len(line)
        self._flush()

    def close(self) -> bool:
        """Closes the file. Returns whether every event is in it."""
        if self._file is not None:
            self._flush()
            self._file.close()
            self._file = None
        return not self._pending and not self._reported

    def _flush(self) -> None:
        try:
            while self._pending and self._file is not None:
                self._file.append(self._pending[0], sync=False)
                self._held -= len(self._pending.popleft())
        except OSError as error:
            self._report(error)

    def _report(self, error: OSError) -> None:
        if not self._reported:
            self._reported = True
            self._on_trouble(error)


def sync(path: Path) -> None:
    """Returns when everything that was written to a file is on the disk. Blocks; does nothing if it cannot be opened."""
    with suppress(OSError), path.open("rb") as file:
        os.fsync(file.fileno())


class RawLine(NamedTuple):
    """A whole line, not decoded."""

    number: int
    """From 1."""
    offset: int
    end: int
    """Offset of the next line."""
    data: bytes
    """With its line break. Of a line that is too long only the beginning, which `decoder` refuses."""


def whole_lines(path: Path) -> Iterator[RawLine]:
    """Yields all whole lines. Another process may be writing the file."""
    with open(open_plain(path), "rb") as file:
        yield from _lines(file, 1)


def _lines(file: BinaryIO, number: int) -> Iterator[RawLine]:
    offset = file.tell()
    while data := file.readline(MOST_BYTES + 1):
        end, last = offset + len(data), data
        while last and not last.endswith(b"\n"):
            last = file.readline(MOST_BYTES)
            end += len(last)
        if not last:
            return
        yield RawLine(number, offset, end, data)
        offset, number = end, number + 1


def read_first(path: Path, decode: Callable[[bytes], Line]) -> Line:
    """Returns the first line of a file.

    Raises:
        OSError, ValueError: it cannot be read, or is another kind of line.
    """
    with open(open_plain(path), "rb") as file:
        return decode(file.readline(MOST_BYTES + 1))


def read_later(path: Path, decode: Callable[[bytes], Line]) -> Iterator[Line]:
    """Yields the lines after the first, up to one that cannot be decoded, such as one that a crash truncated."""
    for line in whole_lines(path):
        if line.number > 1:
            try:
                yield decode(line.data)
            except ValueError:
                return


def last_line(path: Path) -> bytes:
    """Returns the last whole line without its line break, at most its last 64 KiB; empty if there is none."""
    with open(open_plain(path), "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        return (file.read().split(b"\n")[:-1] or [b""])[-1]


class Follower:
    """Reads a file while another process writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at, self._number = 0, 1

    def more(self, most: int = 2000) -> Iterator[RawLine]:
        """Yields whole lines that were added since, at most `most`. A line is taken when the next one is asked for."""
        with open(open_plain(self.path), "rb") as file:
            until = file.seek(self._at) + FOLLOW_BYTES
            for count, line in enumerate(_lines(file, self._number), 1):
                yield line
                self._at, self._number = line.end, line.number + 1
                if count == most or line.end > until:
                    return


def newest_journal(folder: Path) -> Path | None:
    """Returns the newest journal (names of journals sort by time); None if there is none."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.name.endswith(".jsonl")]
    except OSError:
        return None
    return folder / max(names) if names else None
