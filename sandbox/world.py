"""One world as the referee sees it: W rank processes, their sockets, what they print, and how they end."""

import contextlib
import json
import mmap
import os
import selectors
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox import frames, memory
from sandbox.frames import Frame, Kind
from sandbox.gate import GatePage
from sandbox.jail import ending, kernel_cache
from sandbox.jail import memory as bounds
from sandbox.jail.choice import Jail
from sandbox.jail.profiles import import_paths
from sandbox.placement import Seat, cores_of, cuda_environment, gpu_device_files
from sandbox.processes import kill_tree, resume, tree
from sandbox.world_folder import WorldFolder

OUTPUT_KEPT = 256 << 10
OUTPUT_FATAL = 64 << 20
MEMORY_CHECK_SECONDS = 0.25


class WorldFailed(Exception):
    """A rank reported a failure, died, or broke the protocol."""

    def __init__(self, kind: str, rank: int, line: int = 0, text: str = "", status: int = 0) -> None:
        super().__init__(f"rank {rank}: {kind} {text[:500]}")
        self.kind = kind
        """A Kind's name, or "DIED", "PROTOCOL", "FLOOD"."""
        self.rank = rank
        self.line = line
        self.text = text
        self.status = status
        """For DIED: the wait status."""


class Deadline(Exception):
    """Not every rank answered in time."""

    def __init__(self, ranks: list[int]) -> None:
        super().__init__(f"waiting for ranks {ranks}")
        self.ranks = ranks


@dataclass
class _Line:
    """A rank's side of the wire."""

    sock: socket.socket
    pipe: int
    report: mmap.mmap
    buffer: bytearray = field(default_factory=bytearray)
    frames: deque[tuple[Frame, Any, list[int]]] = field(default_factory=deque)
    fds: list[int] = field(default_factory=list)
    printed: int = 0
    status: int | None = None
    closed: bool = False


class World:
    """W ranks behind sockets. All methods are called from the referee's one thread."""

    def __init__(
        self,
        ranks: int,
        trusted: bool,
        jail: Jail,
        selector: selectors.BaseSelector,
        readable: tuple[Path, ...] = (),
        seats: tuple[Seat, ...] = (),
    ) -> None:
        """Starts the processes; they report READY on their own.

        readable: problem folders of the user's own; seats: one GPU per rank, empty for CPU ranks.
        """
        self.ranks = ranks
        self.trusted = trusted
        self.jail = jail
        self.readable = readable
        self.seats = seats
        self.gate: GatePage | None = None
        self._rank_pids: list[int] = []
        self.selector = selector
        self.on_text: Callable[[int, str], None] = lambda rank, text: None
        """Called with what a rank printed (bounded; the rest is dropped, and beyond 64 MiB fails the world)."""
        self.said = ""
        """The end of what all ranks printed."""
        self.started = time.monotonic()
        self.setting_key: Any = None
        self.alive = True
        self.opened = False
        self.failure: WorldFailed | None = None
        self.compiling: set[int] = set()
        self._compiled = 0.0
        self.on_compiling: Callable[[bool], None] = lambda active: None
        self._folder = WorldFolder()
        self.folder = self._folder.path
        self.lines: list[_Line] = []
        theirs: dict[str, list[int]] = {"sockets": [], "reports": [], "pipes": []}
        for rank in range(ranks):
            mine, other = socket.socketpair()
            read, write = os.pipe()
            os.set_blocking(read, False)
            mine.setblocking(False)
            report_fd, report = memory.report_page()
            self.lines.append(_Line(mine, read, report))
            theirs["sockets"].append(other.detach())
            theirs["reports"].append(report_fd)
            theirs["pipes"].append(write)
            selector.register(mine, selectors.EVENT_READ, self._reader(rank))
            selector.register(read, selectors.EVENT_READ, self._printer(rank))
        self.status, status = socket.socketpair()
        self.status.setblocking(False)
        selector.register(self.status, selectors.EVENT_READ, self._reap)
        walls = jail  # the baseline too: what the walls cost must cost both worlds the same
        plan = {
            **theirs,
            "ranks": ranks,
            "trusted": trusted,
            "status": status.fileno(),
            "folder": str(walls.profile.inside(self.folder)),
            "device": "cuda" if seats else "cpu",
            "cores": [cores_of(rank, ranks, seats) for rank in range(ranks)],
        }
        passed = [fd for fds in theirs.values() for fd in fds] + [status.fileno()]
        extra = {
            "PYTHONPATH": os.pathsep.join(map(str, import_paths())),
            "PKB_WORLD": "baseline" if trusted else "contender",
        }
        cache = kernel_cache.prepared()
        if seats:
            extra |= cuda_environment(seats)
        if cache is not None:
            extra["PKB_KERNEL_CACHE"] = str(cache)
            readable = (*readable, cache)
        argv = [sys.executable, "-m", "sandbox.launcher", json.dumps(plan)]
        wrapped = walls.wrap(argv, self.folder, extra, readable, gpu_device_files(seats))
        self.bound = bounds.Bound(
            walls.profile, self.folder, None if trusted else bounds.limit_bytes(len(seats))
        )
        self.process = subprocess.Popen(
            self.bound.starts(wrapped.argv),
            pass_fds=[*passed, *wrapped.fds],
            stdin=subprocess.DEVNULL,
            stdout=theirs["pipes"][0],
            stderr=theirs["pipes"][0],
            env=wrapped.env,
            cwd=self.folder,
            start_new_session=True,
        )
        self.memory_checked = time.monotonic()
        for fd in (*passed[:-1], *wrapped.fds):
            os.close(fd)
        status.close()

    @property
    def compile_seconds(self) -> float:
        """How long any rank has been compiling so far, by what the ranks say of themselves."""
        return self._compiled + (time.monotonic() if self.compiling else 0.0)

    @property
    def rank_pids(self) -> list[int]:
        """The ranks' process ids as the referee sees them, found while nothing but the harness runs in the world."""
        if not self._rank_pids:
            self._rank_pids = tree(self.process.pid)[-self.ranks :]
        return self._rank_pids

    # --- what arrives --------------------------------------------------------------------------------------

    def _reader(self, rank: int) -> Callable[[], None]:
        line_of = self.lines

        def read() -> None:
            line = line_of[rank]
            try:
                data, fds, _, _ = socket.recv_fds(line.sock, 1 << 20, 8)
            except BlockingIOError:
                return
            except OSError:
                data, fds = b"", []
            if not self.trusted:
                for fd in fds:
                    os.close(fd)
            else:
                line.fds += fds
            if not data:
                line.closed = True
                self.selector.unregister(line.sock)
                return
            line.buffer += data
            self._split(rank, line)

        return read

    def _split(self, rank: int, line: _Line) -> None:
        while len(line.buffer) >= frames.SIZE:
            try:
                frame = frames.decode(bytes(line.buffer[: frames.SIZE]))
            except frames.BadFrame as error:
                self.failure = WorldFailed("PROTOCOL", rank, text=str(error))
                line.buffer.clear()
                return
            size = frames.SIZE
            payload = None
            if self.trusted and frame.kind == Kind.REPLY and frame.value:
                size += min(frame.value, frames.MAX_PAYLOAD)
                if len(line.buffer) < size:
                    return
                payload = json.loads(bytes(line.buffer[frames.SIZE : size]))
            fds, line.fds = line.fds, []
            del line.buffer[:size]
            if frame.kind in (Kind.COMPILING, Kind.COMPILED):
                before = bool(self.compiling)
                (self.compiling.add if frame.kind == Kind.COMPILING else self.compiling.discard)(rank)
                if before != bool(self.compiling):
                    self._compiled += time.monotonic() * (1 if before else -1)
                    self.on_compiling(not before)
                continue
            line.frames.append((frame, payload, fds))
        if len(line.frames) > 1024:
            self.failure = WorldFailed("PROTOCOL", rank, text="a rank sends frames without end")
            line.frames.clear()

    def _printer(self, rank: int) -> Callable[[], None]:
        def read() -> None:
            line = self.lines[rank]
            try:
                data = os.read(line.pipe, 1 << 16)
            except (BlockingIOError, OSError):
                return
            if not data:
                self.selector.unregister(line.pipe)
                return
            before = line.printed
            line.printed += len(data)
            if before < OUTPUT_KEPT:
                self.on_text(rank, data[: OUTPUT_KEPT - before].decode("utf-8", "replace"))
            if line.printed > OUTPUT_FATAL:
                self.failure = WorldFailed(
                    "FLOOD", rank, text=f"rank {rank} printed more than {OUTPUT_FATAL >> 20} MiB"
                )

        return read

    def _reap(self) -> None:
        try:
            data = self.status.recv(4096)
        except BlockingIOError:
            return
        if not data:
            self.selector.unregister(self.status)
            for line in self.lines:
                line.closed = True
        for at in range(0, len(data) - frames.SIZE + 1, frames.SIZE):
            with contextlib.suppress(frames.BadFrame):
                frame = frames.decode(data[at : at + frames.SIZE])
                if frame.arg < self.ranks:
                    self.lines[frame.arg].status = frame.value

    # --- what is sent and awaited ----------------------------------------------------------------------------

    def tell(
        self, kind: int, payload: Any = None, rank: int | None = None, fds: tuple[int, ...] = ()
    ) -> None:
        """Sends a frame to one rank or to all."""
        for r in range(self.ranks) if rank is None else [rank]:
            sock = self.lines[r].sock
            try:
                sock.setblocking(True)
                sock.settimeout(5)
                frames.send(sock, kind, payload, fds=fds)
            except OSError:
                pass  # the rank is gone: whoever waits for its answer finds out why
            finally:
                with contextlib.suppress(OSError):
                    sock.setblocking(False)

    def go(self, paused: Sequence[int] = ()) -> int:
        """Releases all ranks at once; returns perf_counter_ns of the moment before.

        paused: processes that were stopped until now. They go on just before: waking up is not the batch's time.
        """
        self.require_silence()
        data = frames.encode(Kind.GO)
        socks = [line.sock for line in self.lines]
        resume(paused)
        started = time.perf_counter_ns()
        for sock in socks:
            with contextlib.suppress(OSError):
                sock.send(data)
        return started

    def require_silence(self) -> None:
        """Nothing may have been said that was not awaited: a DONE sent before GO would end a batch before it began."""
        for rank, line in enumerate(self.lines):
            with contextlib.suppress(OSError):
                if not line.closed and (
                    early := line.sock.recv(frames.SIZE, socket.MSG_PEEK | socket.MSG_DONTWAIT)
                ):
                    self.failure = WorldFailed(
                        "PROTOCOL", rank, text=f"sent {early.hex()} before it was asked"
                    )
            if line.frames and line.frames[0][0].kind not in frames.FAILURES:
                self.failure = WorldFailed(
                    "PROTOCOL", rank, text=f"sent {Kind(line.frames[0][0].kind).name} before GO"
                )

    def missing(self, kind: int) -> list[int]:
        """Ranks whose next frame is not there yet; raises WorldFailed when one says something else, or is gone.

        The earliest cause wins: a rank that reports a failure explains the others' silence.
        """
        if self.failure is not None:
            raise self.failure
        for rank, line in enumerate(self.lines):
            if line.frames and line.frames[0][0].kind in frames.FAILURES:
                frame = line.frames[0][0]
                raise WorldFailed(Kind(frame.kind).name, rank, _line(frame.value), self.report(rank))
        waiting = []
        for rank, line in enumerate(self.lines):
            if line.frames:
                frame = line.frames[0][0]
                if frame.kind == kind:
                    continue
                raise WorldFailed(
                    "PROTOCOL", rank, text=f"sent {Kind(frame.kind).name} where {Kind(kind).name} was due"
                )
            if line.status is not None or line.closed:
                if killed := self.bound.killed():
                    raise WorldFailed("NO_MEMORY", rank, text=killed)
                raise WorldFailed("DIED", rank, status=line.status if line.status is not None else -1)
            waiting.append(rank)
        return waiting

    def check_memory(self) -> None:
        """Fails the world when it holds more than its share; called while somebody waits for it."""
        now = time.monotonic()
        if self.trusted or now - self.memory_checked < MEMORY_CHECK_SECONDS:
            return
        self.memory_checked = now
        if excess := self.bound.excess(tree(self.process.pid)):
            self.failure = WorldFailed("NO_MEMORY", 0, text=excess)

    def take(self) -> list[tuple[Any, list[int]]]:
        """The awaited frame of every rank: (payload, descriptors)."""
        return [line.frames.popleft()[1:] for line in self.lines]

    def report(self, rank: int) -> str:
        """What a rank left in its report page: bytes from an untrusted process, decoded and bounded."""
        page = self.lines[rank].report
        (length,) = struct.unpack("<I", page[:4])
        return bytes(page[4 : 4 + min(length, len(page) - 4)]).decode("utf-8", "replace")

    def keep_compiled(self, digest: str) -> None:
        """Copies what this world has compiled into the kernel cache, for the next world of the same kernel (its SHA-256)."""
        if not self.trusted and self.jail.name != "none":
            kernel_cache.harvest(tree(self.process.pid)[-1], self.jail.profile.inside(self.folder), digest)

    def close(self) -> bool:
        """Kills every process of the world and forgets it; True when all are gone."""
        if not self.alive:
            return True
        self.alive = False
        ending.ask(self.jail.profile, self.process.pid)
        gone = kill_tree(self.process.pid)
        gone = self.bound.close() and gone
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=0.2)
        for line in self.lines:
            for key in (line.sock, line.pipe):
                with contextlib.suppress(KeyError, ValueError):
                    self.selector.unregister(key)
            line.sock.close()
            os.close(line.pipe)
            line.report.close()
            for fd in line.fds:
                os.close(fd)
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(self.status)
        self.status.close()
        if self.gate is not None:
            self.gate.close()
        self._folder.remove()
        return gone


def _line(value: int) -> int:
    return value if 0 < value < 1 << 31 else 0
