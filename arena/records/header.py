"""The journal of a run: the kernel's source, then one JSON line per event. A replay needs nothing else."""

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from sandbox.protocol.events import AnyEvent, Setting, decode_event, encode
from sandbox.protocol.kernel_files import Files, Kernel

Line = TypeVar("Line")

VERSION = 1
PENDING_BYTES = 16 << 20
"""Bytes kept in memory while the disk is full. Further events are missing in the journal, never in the run."""


def new_id(at: float | None = None) -> str:
    """An id for a run, a duel or a trace that begins now, or at `at` (seconds since the epoch). Ids sort by time."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(at))}-{secrets.token_hex(4)}"


class RunHeader(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="run"):
    """First line of a journal: what was run."""

    run_id: str
    created: float
    """Seconds since the epoch."""
    problem_id: int
    slug: str
    category: str
    player: str
    kernel_name: str
    kernel_path: str
    """Empty when the kernel was not read from a file."""
    sha256: str
    source: str
    files: Files = {}
    """The other files of a kernel of several files; then `source` is the text of its kernel.py."""
    setting: Setting
    preset_sizes: bool = True
    """False when a size of the preset was overridden."""
    versus: str = ""
    """Name of the kernel in the baseline's place; empty: the baseline itself."""
    origin: str = ""
    """SHA-256 of the kernel that the player started from; empty: none, or not known."""
    other_than: str = ""
    """For a run in a random setting at other sizes: the id of the run that it belongs to; else empty."""
    correctness_only: bool = False
    """Whether nothing was to be timed: a `compile` call of a model, or a profile."""
    machine: str = ""
    """Fingerprint of the machine that ran it."""
    version: int = VERSION

    @property
    def kernel(self) -> Kernel:
        """The kernel with all its files."""
        return Kernel(self.source, self.files)


_decode_header = msgspec.json.Decoder(RunHeader).decode


class Journal:
    """Writes the events of a run, a duel or a model's trace to a file as they come.

    Its methods raise no OSError: the first one, such as a full disk, is reported to `on_trouble`.
    """

    def __init__(self, path: Path, header: msgspec.Struct, on_trouble: Callable[[OSError], None]) -> None:
        self.path = path
        self._on_trouble = on_trouble
        self._reported = False
        self._pending = bytearray()
        self._file = -1
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self._report(error)
        self._write(encode(header))

    def append(self, event: msgspec.Struct) -> None:
        """Adds an event."""
        self._write(encode(event))

    def close(self) -> bool:
        """Closes the file. Returns whether every event is in it."""
        if self._file >= 0:
            self._flush()
            with suppress(OSError):
                os.close(self._file)
            self._file = -1
        return not self._pending and not self._reported

    def _write(self, line: bytes) -> None:
        if len(self._pending) + len(line) <= PENDING_BYTES:
            self._pending += line + b"\n"
        self._flush()

    def _flush(self) -> None:
        try:
            while self._pending and self._file >= 0:
                written = os.write(self._file, self._pending)
                del self._pending[:written]  # a full disk may take half a line: the rest follows when there is room
        except OSError as error:
            self._report(error)

    def _report(self, error: OSError) -> None:
        if not self._reported:
            self._reported = True
            self._on_trouble(error)


def read_header(path: Path) -> RunHeader:
    """The first line of a journal.

    Raises:
        OSError, ValueError: no file, or not a journal.
    """
    return _decode_header(first_line(path))


def read_events(path: Path) -> Iterator[AnyEvent]:
    """Yields a journal's events, up to the first line that cannot be decoded, such as one cut short by a crash."""
    return later_lines(path, decode_event)


def first_line(path: Path) -> bytes:
    """Returns the header line of the journal of a run, a duel or a trace."""
    with path.open("rb") as file:
        return file.readline()


def later_lines(path: Path, decode: Callable[[bytes], Line]) -> Iterator[Line]:
    """Yields the decoded lines after the first, up to one that cannot be decoded, such as one cut short by a crash."""
    with path.open("rb") as file:
        file.readline()
        for line in file:
            try:
                yield decode(line)
            except ValueError:
                return
