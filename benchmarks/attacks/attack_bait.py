"""Canaries for the attack suite on the host (files, sockets, processes), and the check whether an attack touched one."""

import contextlib
import hashlib
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from sandbox.machine.devices import kind_of
from sandbox.protocol.events import AnyEvent, Log, encode
from sandbox.worlds.contenders import SPARES

TOKEN_VARIABLE = "PKB_CANARY_TOKEN"
MARK_VARIABLE = "NCCL_PKB_MARK"
"""NCCL_ variables are passed on to every world. This one identifies the processes of all worlds."""
LEFT_BEHIND = "pkb-attack-"
"""Prefix of the files that attacks write, wherever they can."""
LEAVE_SECONDS = 10.0
WORLD_BYTES = 1 << 30
"""Memory limit of a world while the suite runs: an attack on memory does not need the whole machine's."""


def _listener() -> socket.socket:
    """A listener whose port no listener of a rank gets by chance: such ports start at 32768."""
    while True:
        with contextlib.suppress(OSError):  # the port of another program
            return socket.create_server(("127.0.0.1", 20_000 + secrets.randbelow(12_000)))


def printed(said: Sequence[AnyEvent]) -> str:
    """The text that ranks printed, rank by rank: they write at the same time, and pieces of lines."""
    logs = [event for event in said if isinstance(event, Log)]
    return "".join(event.text for event in sorted(logs, key=lambda event: event.rank))


def _arrived(take: Callable[[], tuple[object, object]]) -> bool:
    """Takes all that has arrived, from every rank; returns whether anything had."""
    found = False
    with contextlib.suppress(BlockingIOError):
        while True:
            taken, _ = take()
            found = True
            if isinstance(taken, socket.socket):
                taken.close()
    return found


class Bait:
    """Canaries for a suite. `environment` is for the referee; `fill` puts the facts into a kernel's text."""

    def __init__(self, watched: tuple[Path, ...] = ()) -> None:
        """watched: files that must not change."""
        self.secret = secrets.token_hex(16)
        self.mark = secrets.token_hex(8)
        self._folder = tempfile.TemporaryDirectory(prefix=".pkb-bait-", dir=Path.home())
        self.canary = Path(self._folder.name) / "canary.h"
        self.canary.write_text(f"PKBCANARYCONTENT {self.secret}\n")
        self._cache = tempfile.TemporaryDirectory(prefix=".pkb-bait-cache-", dir=Path.home())
        Path(self._cache.name).chmod(0o755)
        self._tcp = _listener()
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind(("127.0.0.1", 0))
        self._abstract = socket.socket(socket.AF_UNIX)
        self._abstract_name = f"pkb-bait-{self.mark}"
        self._abstract.bind("\0" + self._abstract_name)
        self._abstract.listen()
        for sock in (self._tcp, self._udp, self._abstract):
            sock.setblocking(False)
        self._bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(36000)"])
        self._digests = {path: _digest(path) for path in (self.canary, *watched)}

    @property
    def environment(self) -> dict[str, str]:
        """Variables to add to the referee's environment."""
        return {
            TOKEN_VARIABLE: self.secret,
            MARK_VARIABLE: self.mark,
            "PKB_KERNEL_CACHE": self._cache.name,
            "PKB_DEADLINE_SCALE": "0.3",
            "PKB_WORLD_MEMORY": str(WORLD_BYTES),
        }

    def fill(self, source: str, referee: int) -> str:
        """A kernel's text with the bait's places filled in. referee: the referee's process id."""
        facts = {
            "HOME_CANARY": str(self.canary),
            "REFEREE_PID": str(referee),
            "BYSTANDER_PID": str(self._bystander.pid),
            "TCP_PORT": str(self._tcp.getsockname()[1]),
            "UDP_PORT": str(self._udp.getsockname()[1]),
            "ABSTRACT": self._abstract_name,
        }
        for name, value in facts.items():
            source = source.replace(f"@{name}@", value)
        return source

    def harm(self, said: Sequence[AnyEvent] = (), jailed: bool = True, device: str = "cpu") -> tuple[str, ...]:
        """Harm done since the last call, in words. said: the referee's events since then; device: the last run's."""
        found = []
        for what, take in (
            ("a connection over TCP", self._tcp.accept),
            ("a connection over an abstract socket", self._abstract.accept),
            ("a datagram", partial(self._udp.recvfrom, 64)),
        ):
            if _arrived(take):
                found.append(what)
        if self.secret in printed(said) + b"".join(map(encode, said)).decode(errors="replace"):
            found.append("the canary in what the referee said")
        if self._bystander.poll() is not None:
            found.append("a process outside was killed")
        for path, digest in self._digests.items():
            if _digest(path) != digest:
                found.append(f"{path} was changed")
        for folder in ("/tmp", "/dev/shm", "/var/tmp", str(Path.home())):
            found += [f"{folder}/{name} was left" for name in os.listdir(folder) if name.startswith(LEFT_BEHIND)]
        cached = list(Path(self._cache.name).rglob("*"))
        found += [f"{entry} was left" for entry in cached if entry.name.startswith(LEFT_BEHIND)]
        for file in filter(Path.is_file, cached):
            if self.secret.encode() in file.read_bytes():
                found.append(f"the canary in the kernel cache, as {file.name}")
        if jailed and not self._worlds_end(1 + SPARES + kind_of(device).pace.references):
            found.append(f"processes of an ended world are left: {self.processes()}")
        return tuple(found)

    def processes(self) -> dict[int, str]:
        """The processes of all worlds of this suite's referee: pid -> its PID namespace."""
        alive = {}
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended
                if f"{MARK_VARIABLE}={self.mark}".encode() in (entry / "environ").read_bytes():
                    alive[int(entry.name)] = os.readlink(entry / "ns/pid")
        return alive

    def _worlds_end(self, others: int) -> bool:
        """Waits up to LEAVE_SECONDS; returns whether at most `others` jailed worlds are left."""
        own = os.readlink("/proc/self/ns/pid")
        return _in_time(lambda: len(set(self.processes().values()) - {own}) <= others)

    def all_gone(self) -> bool:
        """Waits up to LEAVE_SECONDS; returns whether every process of the ended referee is gone."""
        return _in_time(lambda: not self.processes())

    def close(self) -> None:
        """Removes the canaries."""
        for sock in (self._tcp, self._udp, self._abstract):
            sock.close()
        self._bystander.kill()
        self._bystander.wait()
        self._folder.cleanup()
        self._cache.cleanup()


def _in_time(condition: Callable[[], bool]) -> bool:
    """Waits up to LEAVE_SECONDS for a condition; returns whether it was met."""
    until = time.monotonic() + LEAVE_SECONDS
    while not (met := condition()) and time.monotonic() <= until:
        time.sleep(0.05)
    return met


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return "gone"
