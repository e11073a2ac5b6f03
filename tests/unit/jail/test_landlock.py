"""Profile landlock from inside: what its rules and its supervisor refuse, one attempt at a time, and what they let through."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.jail import ending, landlock
from sandbox.jail.choice import why_not
from sandbox.jail.profiles import LANDLOCK, Profile, Wrapped
from sandbox.jail.seccomp import NoFilter, build_filter, filter_file
from sandbox.machine.processes import tree

Inside = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def program() -> bytes:
    try:
        program = build_filter("landlock")
    except NoFilter as error:
        pytest.skip(str(error))
    reason = why_not(LANDLOCK, program)
    if reason is not None:
        pytest.skip(f"the profile does not hold here: {reason}")
    return program


@pytest.fixture
def inside(program: bytes) -> Iterator[Inside]:
    """Runs a program behind the walls, with the folder that is its own."""
    with tempfile.TemporaryDirectory(prefix="pkb-arena-test-") as folder:

        def run(text: str, **options: Any) -> "subprocess.CompletedProcess[str]":
            wrapped = wrap(text, Path(folder), program)
            try:
                return subprocess.run(
                    wrapped.argv,
                    env=wrapped.env,
                    pass_fds=wrapped.fds,
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    timeout=20,
                    check=False,
                    **options,
                )
            finally:
                os.close(wrapped.fds[0])

        yield run


# os.posix_fallocate writes block after block where the system call is refused, and then reports that all is well.
FALLOCATE = """import ctypes
libc = ctypes.CDLL(None, use_errno=True)
if libc.fallocate(os.open('.', os.O_RDWR | os.O_TMPFILE), 0, ctypes.c_long(0), ctypes.c_long(1 << 20)):
    raise OSError(ctypes.get_errno(), 'fallocate')"""


def wrap(text: str, folder: Path, program: bytes) -> Wrapped:
    argv = [sys.executable, "-I", "-c", text]
    return LANDLOCK.wrap(argv, folder, {}, filter_fd=filter_file(program))


@pytest.mark.parametrize(
    "attempt",
    [
        "socket.socket().bind(('0.0.0.0', 0))",
        "socket.socket().bind(('127.0.0.1', 18080))",
        "socket.socket(socket.AF_INET6).bind(('::', 0))",
        "socket.socket().listen()",
        "socket.socket().connect(('192.0.2.1', 443))",
        "socket.socket(socket.AF_UNIX).bind('own.sock')",
        "socket.socket(socket.AF_UNIX).bind('\\0somebody-elses-name')",
        "socket.socket(socket.AF_UNIX).connect('/run/docker.sock')",
        "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)",
        "socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)",
        "socket.socketpair(type=socket.SOCK_DGRAM)",
        "socket.socket(type=socket.SOCK_DGRAM)",
        "socket.socket(proto=262)",  # MPTCP
        "socket.socket().setsockopt(socket.IPPROTO_TCP, 30, 1)",  # TCP_FASTOPEN_CONNECT
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9)",  # audit
        "os.listdir('/proc')",
        "os.listdir('/tmp')",
        "os.open('/dev/shm/x', os.O_RDWR | os.O_CREAT)",
        "os.open('/etc/passwd', os.O_RDONLY)",
        "os.chmod('.', 0o777)",
        "os.utime('.')",
        "os.setxattr('.', 'user.x', b'')",
        FALLOCATE,
        "os.setpriority(os.PRIO_USER, 0, 5)",
        "os.sched_setscheduler(os.getppid(), os.SCHED_BATCH, os.sched_param(0))",
        "os.kill(os.getppid(), 0)",
        "open(f'/proc/{os.getppid()}/environ')",
    ],
)
def test_it_is_refused(inside: Inside, attempt: str):
    done = inside(f"import os, socket\n{attempt}\nprint('it worked')")
    assert done.stdout == ""
    assert (
        done.stderr.strip()
        .splitlines()[-1]
        .startswith(("PermissionError", "OSError: [Errno 95]", "FileNotFoundError"))
    )


@pytest.mark.parametrize(
    "use",
    [
        "server = socket.create_server(('127.0.0.1', 0)); socket.create_connection(server.getsockname()).send(b'x')",
        "server = socket.create_server(('::1', 0), family=socket.AF_INET6); socket.create_connection(server.getsockname()[:2])",
        "assert socket.if_nameindex()",
        "a, b = socket.socketpair(); a.send(b'x'); assert b.recv(1) == b'x'",
        "os.mkdir('a'); os.rename('a', 'b'); os.rmdir('b')",
        "open('f', 'w').write('x'); os.link('f', 'g'); os.mkdir('d'); os.rename('f', 'd/f')",
        "os.ftruncate(os.memfd_create('m'), 1 << 40)",
        "import subprocess; subprocess.run(['/bin/true'], check=True)",
        "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))",
        "os.sched_setaffinity(0, os.sched_getaffinity(0)); os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))",
        "open('/dev/urandom', 'rb').read(1); open('/dev/null', 'w').write('x'); open('/proc/cpuinfo').read()",
    ],
)
def test_it_is_allowed(inside: Inside, use: str):
    done = inside(f"import os, socket\n{use}\nprint('it worked')")
    assert done.stdout == "it worked\n", done.stderr


def test_a_listener_keeps_the_mode_it_was_given(inside: Inside):
    """gloo's does not block; a duplicate that changed this would stop it for ever."""
    done = inside(
        "import socket\ns = socket.socket()\ns.setblocking(False)\ns.bind(('127.0.0.1', 0))\ns.listen()\n"
        "try: s.accept()\nexcept BlockingIOError: print('did not block')"
    )
    assert done.stdout == "did not block\n", done.stderr


REUSES_A_PORT = """
import os, socket, sys
server = socket.create_server(("127.0.0.1", 0))
place = server.getsockname()
server.shutdown(socket.SHUT_RD)
server.close()
print(place[1], flush=True)
sys.stdin.readline()
try:
    socket.create_connection(place, 2)
    print("connected")
except OSError as error:
    print(error)
"""


def test_a_port_that_a_stranger_has_taken_over_is_out_of_reach(program: bytes, tmp_path: Path):
    wrapped = wrap(REUSES_A_PORT, tmp_path, program)
    with subprocess.Popen(
        wrapped.argv,
        env=wrapped.env,
        pass_fds=wrapped.fds,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        os.close(wrapped.fds[0])
        assert process.stdin is not None
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with socket.create_server(("127.0.0.1", port)) as stranger:
            stranger.setblocking(False)
            said, _ = process.communicate("go\n", timeout=20)
            assert "outside" not in said
            assert "Permission denied" in said
            with pytest.raises(BlockingIOError):
                stranger.accept()


CHANGES_THE_ADDRESS = """
import ctypes, socket, struct, threading, time
libc = ctypes.CDLL(None, use_errno=True)
own = socket.create_server(("127.0.0.1", 0), backlog=4096)
address = ctypes.create_string_buffer(struct.pack("=H", 2) + struct.pack("!H4s8x", own.getsockname()[1], bytes([127, 0, 0, 1])))
ports = [struct.pack("!H", port) for port in (own.getsockname()[1], @PORT@)]
done = False
def flip():
    while not done:
        for port in ports:
            address[2:4] = port
thread = threading.Thread(target=flip)
thread.start()
worked = refused = 0
until = time.monotonic() + 3
while time.monotonic() < until:
    with socket.socket() as sock:
        if libc.connect(sock.fileno(), address, 16) == 0:
            worked += 1
            own.accept()[0].close()
        else:
            refused += 1
done = True
thread.join()
print(worked > 0, refused > 0)
"""


@pytest.mark.slow
def test_an_address_changed_after_the_look_changes_nothing(inside: Inside):
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        done = inside(CHANGES_THE_ADDRESS.replace("@PORT@", str(stranger.getsockname()[1])))
        assert done.stdout == "True True\n", done.stderr
        stranger.setblocking(False)
        with pytest.raises(BlockingIOError):
            stranger.accept()


def test_killing_everything_kills_its_own_world_alone(inside: Inside):
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as bystander:
        try:
            done = inside(
                "import os, signal\nif os.fork() == 0: os.kill(-1, signal.SIGKILL)\nos.wait()\nprint('lives')"
            )
            assert done.returncode == 128 + signal.SIGKILL
            assert done.stdout == ""
            assert bystander.poll() is None
        finally:
            bystander.kill()


RUNS_AWAY = """
import os, time
if os.fork() == 0:
    os.setsid()
    while True:  # always a child of a process that is gone
        if os.fork():
            os._exit(0)
print(os.getpid(), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGKILL])
def test_a_world_that_forks_and_leaves_without_end_is_ended_as_a_whole(program, tmp_path, asked):
    """Asked to end; and, where the world's first process was killed, of its own accord."""
    wrapped = wrap(RUNS_AWAY, tmp_path, program)
    mark = f"MARK={tmp_path}".encode()
    with subprocess.Popen(
        wrapped.argv,
        env={**wrapped.env, "MARK": str(tmp_path)},
        pass_fds=wrapped.fds,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        os.close(wrapped.fds[0])
        assert process.stdout is not None
        first = int(process.stdout.readline())
        assert len(marked(mark)) >= 2
        if asked == signal.SIGTERM:
            ending.ask(LANDLOCK, lambda: tree(process.pid))
        else:
            os.kill(first, asked)
        assert process.wait(10) in (128 + signal.SIGTERM, 128 + signal.SIGKILL)
    assert marked(mark) == []


def marked(mark: bytes) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (entry / "environ").read_bytes():
                found.append(entry.name)
    return found


def test_the_exit_status_is_the_programs(inside: Inside):
    assert inside("raise SystemExit(7)").returncode == 7


def test_it_sees_no_file_of_its_checkout(inside: Inside):
    root = Path(__file__).resolve().parents[3]
    done = inside(
        f"import os\nopen({str(root / 'sandbox/worlds/world.py')!r}).close()\nos.listdir({str(root)!r})"
    )
    assert "PermissionError" in done.stderr
    assert "line 3" in done.stderr


class Filtered(Profile):
    """The profile with another one's filter."""

    def wrap(self, *arguments: Any, **options: Any) -> Wrapped:
        options["filter_fd"] = filter_file(build_filter("full"))
        return Profile.wrap(self, *arguments, **options)


def test_without_the_supervisor_the_self_test_says_what_leaks(program: bytes):
    reason = why_not(Filtered("landlock"), program)
    assert reason is not None
    for leak in ("reaches_path_socket", "sends_datagrams", "changes_modes", "limits_referee"):
        assert leak in reason


class Wide(Profile):
    """The profile with the whole file system readable."""

    def wrap(self, *arguments: Any, **options: Any) -> Wrapped:
        wrapped = Profile.wrap(self, *arguments, **options)
        at = next(at for at, word in enumerate(wrapped.argv) if word.startswith('{"filter"'))
        plan = json.loads(wrapped.argv[at])
        plan["read"] = ["/"]
        return Wrapped(
            [*wrapped.argv[:at], json.dumps(plan), *wrapped.argv[at + 1 :]], wrapped.env, wrapped.fds
        )


def test_a_readable_home_is_found_by_the_self_test(program: bytes):
    assert "reads_home" in (why_not(Wide("landlock"), program) or "")


def test_an_old_kernel_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(landlock, "abi", lambda: 4)
    with pytest.raises(landlock.NoLandlock, match="version 4 of Landlock, and 6 is needed"):
        landlock.restrict(landlock.SIGNALS)
