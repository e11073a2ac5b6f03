"""The self-test of a jail: runs inside, tries what a kernel could try, and prints the results as JSON.

python selftest.py '{"canary": PATH, "referee": PID, "command": ITS COMMAND LINE, "namespaces": {"pid": ITS, "net": ITS},
                     "port": N, "abstract": NAME, "sockets": FOLDER OF stream AND datagram}'
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import platform
import resource
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

END_SECONDS = 30
FORBIDDEN = (
    *("reads_home", "reads_environment", "reads_referee"),
    *("reaches_network", "reaches_abstract_socket", "reaches_path_socket"),
    *("sends_datagrams", "sends_datagrams_to_a_path", "listens_for_strangers"),
    *("writes_system", "writes_program", "changes_modes", "watches_files", "writes_sysctl", "makes_user_namespace"),
    *("signals_referee", "limits_referee", "moves_referee", "is_root", "has_stray_descriptors", "opens_vsock"),
    *("continues_by_a_timer", "continues_by_a_message", "continues_by_data"),
    *("continues_by_an_end", "continues_by_a_group", "continues_by_a_terminal"),
    *("has_secret_memory", "sets_timers", "sends_later"),
)
NEEDED = (
    *("has_loopback", "has_interfaces", "has_abstract_sockets"),
    *("has_shared_memory", "has_memfd", "has_tmp", "has_processes"),
)
AF_VSOCK, MSG_FASTOPEN, SOCKET_CALL = 40, 0x20000000, {"x86_64": 41, "aarch64": 198}
CLONE, TIMER_CREATE, MQ_NOTIFY, IO_SETUP = {"x86_64": (56, 222, 244, 206), "aarch64": (220, 107, 184, 0)}.get(
    platform.machine(), (-1, -1, -1, -1)
)
SET_FOR_LATER = ((socket.SOL_SOCKET, 47), (socket.IPPROTO_TCP, socket.TCP_CORK), (socket.IPPROTO_TCP, 18))
"""SO_MAX_PACING_RATE, TCP_CORK and TCP_USER_TIMEOUT."""
MEMFD_SECRET, F_SETSIG, PR_SET_PDEATHSIG = 447, 10, 1
SYSCTLS = ("core_pattern", "hostname")

_libc = ctypes.CDLL(None, use_errno=True)


def attempts(facts: dict[str, Any]) -> dict[str, Callable[[], bool]]:
    """Attempts by name, in their order. Each returns whether it worked; an exception means no."""
    found = _files(facts) | _processes(facts) | _sockets(facts) | _signals() | _memory()
    first = "has_stray_descriptors"  # other attempts leave descriptors open
    names = (first, *(name for name in (*FORBIDDEN, *NEEDED) if name != first))
    return {name: found[name] for name in names}


# --- files -----------------------------------------------------------------------------------------------


def _files(facts: dict[str, Any]) -> dict[str, Callable[[], bool]]:
    """Attempts on files, folders and descriptors."""

    def changes_modes() -> bool:
        os.chmod(facts["canary"], 0o600)
        return True

    return {
        "has_stray_descriptors": lambda: _one_works(
            *(lambda number=number: fcntl.fcntl(number, fcntl.F_GETFD) >= 0 for number in range(3, 4096))
        ),
        "reads_home": lambda: "canary" in Path(facts["canary"]).read_text(),
        "reads_environment": lambda: (
            "PKB_CANARY" in str(os.environ)
            or _one_works(
                *(lambda at=at: b"PKB_CANARY" in at.read_bytes() for at in Path("/proc").glob("[0-9]*/environ"))
            )
        ),
        "writes_system": lambda: _writable("/usr/pkb-canary"),
        "writes_program": lambda: _writable(f"{__file__}.canary"),
        "changes_modes": changes_modes,
        "watches_files": lambda: _libc.inotify_add_watch(_libc.inotify_init(), facts["canary"].encode(), 0xFFF) >= 0,
        "writes_sysctl": lambda: any(os.access(f"/proc/sys/kernel/{name}", os.W_OK) for name in SYSCTLS),
        "has_tmp": lambda: _writable(f"{tempfile.gettempdir()}/pkb-probe"),
    }


def _writable(path: str) -> bool:
    file = Path(path)
    file.write_text("x")
    file.unlink()
    return True


# --- processes -------------------------------------------------------------------------------------------


def _processes(facts: dict[str, Any]) -> dict[str, Callable[[], bool]]:
    """Attempts on the referee's process, on user ids and namespaces."""
    referee = facts["referee"]

    def is_referee() -> bool:
        """Whether the process with the referee's id is the referee; in a PID namespace it may be another one."""
        return os.readlink("/proc/self/ns/pid") == facts["namespaces"]["pid"] or bool(
            Path(f"/proc/{referee}/cmdline").read_bytes().decode(errors="replace") == facts["command"]
        )

    def signals() -> bool:
        os.kill(referee, 0)
        return is_referee()

    def limits() -> bool:
        resource.prlimit(referee, resource.RLIMIT_NOFILE)
        return is_referee()

    def moves() -> bool:
        os.sched_setaffinity(referee, os.sched_getaffinity(referee))
        return is_referee()

    return {
        "reads_referee": lambda: len(Path(f"/proc/{referee}/environ").read_bytes()) > 0 and is_referee(),
        "signals_referee": signals,
        "limits_referee": limits,
        "moves_referee": moves,
        "is_root": lambda: os.getuid() == 0,
        "makes_user_namespace": lambda: _in_child(lambda: _libc.unshare(0x10000000) == 0),
        "has_processes": lambda: os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)[1] == 0,
    }


# --- sockets ---------------------------------------------------------------------------------------------


def _sockets(facts: dict[str, Any]) -> dict[str, Callable[[], bool]]:
    """Attempts on networks and sockets."""

    def tcp() -> bool:
        port = facts["port"]
        return _one_works(
            lambda: _connects(socket.AF_INET, ("127.0.0.1", port)),
            lambda: _connects(socket.AF_INET, ("0.0.0.0", port)),
            lambda: _connects(socket.AF_INET6, ("::ffff:127.0.0.1", port)),
            lambda: socket.socket().sendto(b"x", MSG_FASTOPEN, ("127.0.0.1", port)) > 0,
        )

    def path_socket() -> bool:
        os.chdir(facts["sockets"])
        return _connects(socket.AF_UNIX, "stream")

    def path_datagrams() -> bool:
        os.chdir(facts["sockets"])
        return _one_works(
            lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", "datagram") == 1,
            lambda: socket.socketpair(type=socket.SOCK_DGRAM)[0].sendto(b"x", "datagram") == 1,
        )

    def strangers() -> bool:
        with socket.create_server(("0.0.0.0", 0)):
            return bool(os.readlink("/proc/self/ns/net") == facts["namespaces"]["net"])

    return {
        "reaches_network": tcp,
        "reaches_abstract_socket": lambda: _connects(socket.AF_UNIX, "\0" + facts["abstract"]),
        "reaches_path_socket": path_socket,
        "sends_datagrams": _datagram,
        "sends_datagrams_to_a_path": path_datagrams,
        "listens_for_strangers": strangers,
        "opens_vsock": _vsock,
        "sends_later": _sends_later,
        "has_loopback": _loopback,
        "has_interfaces": lambda: "lo" in [name for _, name in socket.if_nameindex()],
        "has_abstract_sockets": _abstract,
    }


def _connects(family: int, address: Any) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.settimeout(0.5)
        sock.connect(address)
    return True


def _datagram() -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        return sock.sendto(b"x", ("192.0.2.1", 53)) == 1


def _vsock() -> bool:
    wide = _libc.syscall(SOCKET_CALL[platform.machine()], ctypes.c_long(AF_VSOCK | 1 << 32), 1, 0) >= 0
    return bool(wide or socket.socket(AF_VSOCK, socket.SOCK_STREAM))


def _sends_later() -> bool:
    """Whether a socket can be set to send or give up at a later time."""
    with socket.socket() as sock:
        for level, option in SET_FOR_LATER:
            if _works(lambda: not sock.setsockopt(level, option, 1000)):  # noqa: B023
                return True
    return False


def _loopback() -> bool:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), 1):
        return True


def _abstract() -> bool:
    name = f"\0pkb-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(name)
        server.listen()
        client.connect(name)
        socket.send_fds(client, [b"x"], [client.fileno()])
        received = socket.recv_fds(server.accept()[0], 1, 1)[1]
        return bool(received)


# --- signals ---------------------------------------------------------------------------------------------


def _signals() -> dict[str, Callable[[], bool]]:
    """Attempts to have the operating system continue a stopped process, or run something later."""
    return {
        "continues_by_a_timer": _timer,
        "continues_by_a_message": _message,
        "continues_by_data": _data,
        "continues_by_an_end": _ending,
        "continues_by_a_group": _group,
        "continues_by_a_terminal": _terminal,
        "sets_timers": _sets_timers,
    }


def _timer() -> bool:
    """Whether a timer can send SIGCONT: struct sigevent is value, signal, SIGEV_SIGNAL."""
    event, number = (ctypes.c_int * 16)(0, 0, signal.SIGCONT, 0), ctypes.c_int()
    return bool(_libc.syscall(TIMER_CREATE, time.CLOCK_MONOTONIC, event, ctypes.byref(number)) == 0)


def _message() -> bool:
    """Whether mq_notify is allowed: it then fails with EBADF for an invalid descriptor."""
    return bool(_libc.syscall(MQ_NOTIFY, -1, None) < 0 and ctypes.get_errno() == errno.EBADF)


def _data() -> bool:
    ours, _ = socket.socketpair()
    fcntl.fcntl(ours, F_SETSIG, signal.SIGCONT)
    return True


def _ending() -> bool:
    """Whether the end of a process can send SIGCONT to its parent or its children."""
    if _libc.prctl(PR_SET_PDEATHSIG, signal.SIGCONT, 0, 0, 0) == 0:
        return True
    pid = _libc.syscall(CLONE, int(signal.SIGCONT), 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    if pid > 0:
        os.waitpid(pid, 0x40000000)  # __WALL: it does not end with SIGCHLD
    return bool(pid > 0)


def _group() -> bool:
    """Whether a child can get its own process group in this session."""
    return _in_child(lambda: _libc.setpgid(0, 0) == 0 and os.getpgrp() == os.getpid())


def _terminal() -> bool:
    for descriptor in os.openpty():
        os.close(descriptor)
    return True


def _sets_timers() -> bool:
    """Whether an event that needs no running process can be set for later."""
    return _one_works(
        lambda: _libc.timerfd_create(time.CLOCK_MONOTONIC, 0) >= 0,
        lambda: _libc.signalfd(-1, (ctypes.c_ulong * 16)(), 0) >= 0,
        lambda: signal.setitimer(signal.ITIMER_REAL, END_SECONDS) == (0.0, 0.0),
        lambda: _libc.syscall(IO_SETUP, 1, ctypes.byref(ctypes.c_ulong())) == 0,
    )


# --- memory ----------------------------------------------------------------------------------------------


def _memory() -> dict[str, Callable[[], bool]]:
    """Attempts to get memory: secret memory, which nobody else could read, and the shared memory that ranks need."""
    return {
        "has_secret_memory": lambda: bool(_libc.syscall(MEMFD_SECRET, 0) >= 0),
        "has_shared_memory": lambda: _writable("/dev/shm/pkb-probe"),
        "has_memfd": lambda: os.memfd_create("probe") >= 0,
    }


def _works(attempt: Callable[[], object]) -> bool:
    with contextlib.suppress(Exception):
        return bool(attempt())
    return False


def _in_child(attempt: Callable[[], object]) -> bool:
    """Whether it works in a child, which has one thread alone."""
    pid = os.fork()
    if pid == 0:
        os._exit(0 if _works(attempt) else 1)
    return os.waitpid(pid, 0)[1] == 0


def _one_works(*attempts: Callable[[], object]) -> bool:
    return any(map(_works, attempts))


def main() -> None:
    """Runs all attempts and prints the results."""
    # This also ends the self-test if its parent was killed. The filter refuses alarms.
    end = threading.Timer(END_SECONDS, os._exit, (1,))
    end.daemon = True
    end.start()
    facts = json.loads(sys.argv[1])
    print(json.dumps({name: _works(attempt) for name, attempt in attempts(facts).items()}))


if __name__ == "__main__":
    main()
