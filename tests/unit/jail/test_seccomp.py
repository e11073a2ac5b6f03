"""The system-call filter in a process: what it refuses, and what it leaves. The calls are invalid, or have no effect."""

import ctypes
import errno
import json
import os
from collections.abc import Iterable
from typing import Any

import pytest
from no_jail import no_jail

from sandbox.jail.joining import install
from sandbox.jail.seccomp import NoFilter, build_filter

REFUSED, LEFT = errno.EPERM, "another"
NOWHERE, STRANGER = -1, 2**22 + 1
"""No descriptor, and no process: ids are smaller."""
CALLS: dict[str, tuple[tuple[int, ...], Any, Any]] = {
    "memfd_secret": ((99,), REFUSED, REFUSED),
    "clone3": ((0, 0), errno.ENOSYS, errno.ENOSYS),
    "clone 0x10000200": ((0x10000200,), REFUSED, REFUSED),  # a user namespace
    "clone 0x812": ((0x812,), REFUSED, LEFT),  # whose end continues its parent
    "clone 0x811": ((0x811,), LEFT, LEFT),
    "ioctl TIOCSTI": ((NOWHERE, 0x5412), REFUSED, REFUSED),
    "ioctl TIOCLINUX": ((NOWHERE, 0x541C), REFUSED, REFUSED),
    "ioctl TIOCSPTLCK": ((NOWHERE, 0x40045431), REFUSED, LEFT),
    "ioctl TCGETS": ((NOWHERE, 0x5401), LEFT, LEFT),
    "fcntl F_SETLEASE": ((NOWHERE, 1024), REFUSED, REFUSED),
    "fcntl F_SETSIG": ((NOWHERE, 10), REFUSED, LEFT),
    "fcntl F_GETFD": ((NOWHERE, 1), LEFT, LEFT),
    "socket AF_ALG": ((38, 99), REFUSED, REFUSED),
    "socket AF_NETLINK": ((16, 99), LEFT, LEFT),
    "mremap": ((1,), errno.ENOMEM, LEFT),
    "inotify_init1": ((-1,), errno.EMFILE, LEFT),
    "timer_create": ((99, 1), REFUSED, LEFT),
    "prctl PR_SCHED_CORE": ((62, 99), REFUSED, LEFT),
    "prctl SIGCONT": ((1, 18), REFUSED, 0),
    "prctl no signal": ((1, 99), LEFT, LEFT),
    "setpgid": ((-1, -1), 0, LEFT),
    "setitimer ITIMER_REAL": ((0, 1), REFUSED, LEFT),
    "setitimer ITIMER_PROF": ((2, 1), LEFT, LEFT),
    **{f"setsockopt SOL_SOCKET {option}": ((NOWHERE, 1, option), REFUSED, LEFT) for option in (47, 61)},
    **{f"setsockopt IPPROTO_TCP {option}": ((NOWHERE, 6, option), REFUSED, LEFT) for option in (3, 9, 18)},
    "setsockopt SO_KEEPALIVE": ((NOWHERE, 1, 9), LEFT, LEFT),
    "setsockopt TCP_INFO": ((NOWHERE, 6, 61), LEFT, LEFT),
}
"""By name: arguments, and what comes of the call in a world and in an agent program."""
ON_OTHERS = {"prlimit64": (99,), "sched_setaffinity": (0, 0), "sched_setscheduler": (99, 0), "sched_setparam": (0,)}
"""Calls on another process, without its id."""


def outcomes(program: bytes, calls: Iterable[tuple[str, tuple[int, ...]]]) -> dict[str, Any]:
    """Makes calls in a child with this filter."""
    import pyseccomp

    libc = ctypes.CDLL(None, use_errno=True)
    numbers = {name: pyseccomp.resolve_syscall(pyseccomp.system_arch(), name.split()[0]) for name, _ in calls}
    numbers["memfd_secret"] = 447
    read, write = os.pipe()
    if not os.fork():
        install(program)
        found = {}
        for name, arguments in calls:
            failed = libc.syscall(numbers[name], *map(ctypes.c_long, (*arguments, *[0] * (6 - len(arguments)))))
            number = ctypes.get_errno() if failed else 0
            found[name] = number if number in (0, errno.EPERM, errno.ENOSYS, errno.ENOMEM, errno.EMFILE) else LEFT
        os.write(write, json.dumps(found).encode())
        os._exit(0)
    os.close(write)
    os.wait()
    with open(read, "rb") as pipe:
        return json.loads(pipe.read())


@pytest.fixture(autouse=True)
def _libseccomp() -> None:
    try:
        build_filter()
    except NoFilter as error:
        no_jail([str(error)])


@pytest.mark.parametrize("timed", [True, False])
def test_refused_calls_and_their_neighbours(timed: bool) -> None:
    found = outcomes(build_filter(timed=timed), [(name, arguments) for name, (arguments, *_) in CALLS.items()])
    assert found == {name: in_world if timed else of_agent for name, (_, in_world, of_agent) in CALLS.items()}


@pytest.mark.parametrize("profile", ["full", "nested"])
def test_other_processes_are_left_alone_in_nested(profile: str) -> None:
    own = {f"{name} own": (0, *arguments) for name, arguments in ON_OTHERS.items()} | {"setpriority 99": (99, 0)}
    others = {f"{name} another's": (STRANGER, *arguments) for name, arguments in ON_OTHERS.items()}
    others |= {f"setpriority {which}": (which, STRANGER) for which in (0, 1, 2)}
    others |= {f"ioprio_set {which}": (which, who, 7 << 13) for which, who in ((1, STRANGER), (2, 0), (3, 0))}
    if profile == "nested":  # elsewhere it would have an effect
        others |= {f"setpriority {which} own": (which, 0) for which in (1, 2)}
    found = outcomes(build_filter(profile), list((own | others).items()))
    assert {name for name, outcome in found.items() if outcome == REFUSED} == {*(others if profile == "nested" else ())}
