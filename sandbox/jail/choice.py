"""Chooses the strongest profile whose self-test passes on this machine."""

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from sandbox.jail import profiles, selftest
from sandbox.jail.profiles import FULL, NESTED, NONE, ROOT, Caps, Profile, Wrapped
from sandbox.jail.seccomp import NoFilter, build_filter, memory_file
from sandbox.machine.locked_folder import CANARY, SELFTEST, LockedFolder
from sandbox.machine.processes import send, tree

TEST_SECONDS = 20.0


@dataclass(frozen=True)
class Jail:
    """The chosen profile, with the reasons why stronger ones were rejected."""

    profile: Profile
    filter: bytes | None
    rejected: dict[str, str]

    def filter_fd(self, caps: Caps | None = None) -> int | None:
        """A descriptor of the filter for `Profile.wrap`. With `caps` it is that of an agent program, which allows timers."""
        program = self.filter if caps is None else build_filter(self.name, timed=False)
        return None if program is None else memory_file(program)

    @property
    def name(self) -> str:
        """The profile's name, which every verdict shows."""
        return self.profile.name


@lru_cache(maxsize=1)
def choose() -> Jail:
    """Chooses the first profile that passes its self-test, from strong to weak. A test takes 0.1 s."""
    rejected: dict[str, str] = {}
    for profile in (ROOT if os.geteuid() == 0 else FULL, NESTED):
        reason = _missing()
        if reason is None:
            try:
                program = build_filter(profile.name)
            except NoFilter as error:
                return Jail(NONE, None, rejected | {profile.name: str(error)})
            reason = why_not(profile, program)
            if reason is None:
                return Jail(profile, program, rejected)
        if reason not in rejected.values():
            rejected[profile.name] = reason
    with contextlib.suppress(NoFilter):
        return Jail(NONE, build_filter(NONE.name), rejected)
    return Jail(NONE, None, rejected)


def _missing() -> str | None:
    """What every profile needs and this machine lacks, in one line; None if nothing is missing."""
    if sys.platform != "linux":
        return "isolation needs Linux"
    return None if shutil.which("bwrap") else "bubblewrap is not installed"


def why_not(profile: Profile, program: bytes) -> str | None:
    """The reason why a profile fails its self-test, in one line; None if it passes."""
    with _bait() as facts, LockedFolder(SELFTEST) as work:
        os.environ["PKB_CANARY"] = "canary"  # a jail that passes on the environment fails the test
        try:
            argv = [sys.executable, "-I", str(Path(selftest.__file__).resolve()), json.dumps(facts)]
            with contextlib.closing(profile.wrap(argv, work.path, {}, filter_fd=memory_file(program))) as test:
                status, said, complaints = _run(test)
        except subprocess.TimeoutExpired as error:
            return f"the self-test timed out after {error.timeout:g} s"
        except OSError as error:
            return str(error)
        finally:
            del os.environ["PKB_CANARY"]
    try:
        found: dict[str, bool] = json.loads(said)
    except ValueError:
        lines = complaints.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"the self-test ended with status {status}"
    # Without a PID namespace the referee is visible, but another uid can neither read nor signal it.
    accepted = ("is_root",) if profile.name == "nested" and os.geteuid() != 0 else ()
    leaks = [name for name in selftest.FORBIDDEN if found.get(name, True) and name not in accepted]
    lacks = [name for name in selftest.NEEDED if not found.get(name, False)]
    return f"from inside, a kernel {', '.join(leaks)}" if leaks else f"without {', '.join(lacks)}" if lacks else None


def _run(test: Wrapped) -> tuple[int, bytes, bytes]:
    """Status, stdout and stderr of a self-test. All its processes are killed if it times out.

    Killing bubblewrap alone is not enough, because its child may not be tied to it yet.
    """
    with subprocess.Popen(
        test.argv, **test.inherited, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            said, complaints = process.communicate(timeout=TEST_SECONDS)
        except BaseException:
            for number in (signal.SIGSTOP, signal.SIGKILL):
                send(tree(process.pid), number)
            raise
    return process.returncode, said, complaints


def _canary_in(place: Path) -> LockedFolder:
    folder = LockedFolder(f".{CANARY}", place)
    try:
        (folder.path / "canary").write_text("canary")
    except OSError:
        folder.remove()
        raise
    return folder


@contextlib.contextmanager
def _bait() -> Iterator[dict[str, Any]]:
    """Targets for the self-test: a file at home, a TCP listener, sockets with names and paths, this and another process."""
    name = f"{CANARY}{secrets.token_hex(8)}"
    try:
        home = _canary_in(Path.home())
    except OSError:  # read-only, or its disk is full
        home = _canary_in(profiles.SOURCE_ROOT.parent)
    with (
        home,
        subprocess.Popen(["cat"], env={"PKB_CANARY": "canary"}, stdin=subprocess.PIPE),
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as abstract,
        LockedFolder(CANARY) as outside,
        socket.socket(socket.AF_UNIX) as stream,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagram,
    ):
        canary, sockets = home.path / "canary", outside.path
        abstract.bind("\0" + name)
        abstract.listen()
        sockets.chmod(0o755)
        # A socket address holds 108 bytes, and the path may be longer.
        inside = os.open(sockets, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for sock, path in ((stream, "stream"), (datagram, "datagram")):
                sock.bind(f"/proc/self/fd/{inside}/{path}")
                (sockets / path).chmod(0o777)
        finally:
            os.close(inside)
        stream.listen()
        yield {
            "canary": str(canary),
            "referee": os.getpid(),
            "command": Path("/proc/self/cmdline").read_bytes().decode(errors="replace"),
            "namespaces": {kind: os.readlink(f"/proc/self/ns/{kind}") for kind in ("pid", "net")},
            "sockets": str(sockets),
            "port": server.getsockname()[1],
            "abstract": name,
        }
