"""System calls that no kernel needs, as a filter for bubblewrap's --seccomp. The filter itself is libseccomp's work."""

import os
from typing import Any

REFUSED = (  # noqa: SIM905
    "ptrace process_vm_readv process_vm_writev unshare setns mount umount2 pivot_root move_mount fsopen fsmount fsconfig "
    "open_tree add_key keyctl request_key bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register "
    "init_module finit_module delete_module kexec_load kexec_file_load quotactl acct swapon swapoff reboot "
    "open_by_handle_at name_to_handle_at lookup_dcookie personality syslog "
    "shmget shmat msgget semget "  # System V memory that no process maps would count for nobody
    "memfd_secret "  # memory that nobody outside can look at
    "timer_create mq_notify "  # ways to a SIGCONT that no running process sends: see _stays_stopped
    "timerfd_create timerfd_settime timerfd_gettime signalfd signalfd4 alarm io_setup"  # see _rests
).split()
CLONE_NEWUSER, EXIT_SIGNAL = 0x10000000, 0xFF
SIGCONT = 18
PR_SET_PDEATHSIG, F_SETSIG, TIOCSPTLCK = 1, 10, 0x40045431
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
AF_PACKET, AF_ALG, AF_VSOCK = 17, 38, 40
ITIMER_REAL, SOL_SOCKET, IPPROTO_TCP = 0, 1, 6
SO_MAX_PACING_RATE, SO_TXTIME = 47, 61
TCP_CORK, TCP_DEFER_ACCEPT, TCP_USER_TIMEOUT = 3, 9, 18
EPERM, ENOSYS = 1, 38
UNKNOWN = -1
INT = 0xFFFFFFFF
"""The part of an argument that the kernel looks at where it takes an int: the rest may hold anything."""

ON_OTHERS = (  # noqa: SIM905
    "prlimit64 sched_setaffinity sched_setscheduler sched_setparam sched_setattr"
).split()
"""Take a process id first; of the same user's, any."""
NUMBERS = {"memfd_secret": 447}
"""Calls younger than many an installed libseccomp; the same numbers on every architecture."""


class NoFilter(RuntimeError):
    """libseccomp is not there; the message says what to install."""


def build_filter(profile: str = "full") -> bytes:
    """The filter of a profile, as bubblewrap and seccomp(2) read it.

    nested: other processes of this user can be named, so the calls that act on them are refused.

    Raises:
        NoFilter: pyseccomp or libseccomp is missing.
    """
    try:
        import pyseccomp
    except (ImportError, OSError, RuntimeError) as error:
        raise NoFilter(f"no system-call filter ({error}): apt-get install libseccomp2") from None
    try:
        return _rules(_Program(pyseccomp), profile)
    except (OSError, ValueError) as error:
        raise NoFilter(f"no system-call filter: libseccomp refuses a rule ({error})") from None


def _rules(program: "_Program", profile: str) -> bytes:
    for name in REFUSED:
        program.refuse(name)
    program.refuse("clone", program.bits(0, CLONE_NEWUSER, CLONE_NEWUSER))
    program.refuse("clone3", error=ENOSYS)  # its flags lie in memory, where no filter sees them
    for request in (TIOCSTI, TIOCLINUX):
        program.refuse("ioctl", program.bits(1, INT, request))
    for family in (AF_ALG, AF_PACKET, AF_VSOCK):
        program.refuse("socket", program.bits(0, INT, family))
    _stays_stopped(program)
    _rests(program)
    if profile == "nested":
        _leave_others_alone(program)
    return program.export()


class _Program:
    """Rules in the words of this module."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._filter = library.SyscallFilter(library.ALLOW)

    def refuse(self, name: str, *conditions: Any, error: int = EPERM) -> None:
        """The call fails where all conditions hold."""
        number = self._library.resolve_syscall(self._library.system_arch(), name)
        if number == UNKNOWN:
            number = NUMBERS.get(name, UNKNOWN)
        if number != UNKNOWN:  # else this architecture has no such call
            self._filter.add_rule(self._library.ERRNO(error), number, *conditions)

    def bits(self, argument: int, mask: int, value: int) -> Any:
        """A condition: these bits of an argument are value."""
        return self._library.Arg(argument, self._library.MASKED_EQ, mask, value)

    def above(self, argument: int, value: int) -> Any:
        """A condition: an argument, all 64 bits of it, is greater than value."""
        return self._library.Arg(argument, self._library.GT, value)

    def export(self) -> bytes:
        """As struct sock_filter[]."""
        with os.fdopen(os.memfd_create("pkb-seccomp"), "w+b") as file:
            self._filter.export_bpf(file)
            file.seek(0)
            return file.read()


def _stays_stopped(program: _Program) -> None:
    """What is stopped together goes on together: no SIGCONT comes from a timer (`timer_create`), from data that arrives
    (`F_SETSIG`, `mq_notify`), or from a process that was ending when it should have stopped. Of the last, the signal for its
    parent is the clone's, that for its children `PR_SET_PDEATHSIG`; a process group that it orphans (`setpgid`) and the
    session of a terminal that it hangs up (one needs `TIOCSPTLCK` to open it) get one from the kernel.
    """
    program.refuse("clone", program.bits(0, EXIT_SIGNAL, SIGCONT))
    program.refuse("prctl", program.bits(0, INT, PR_SET_PDEATHSIG), program.bits(1, INT, SIGCONT))
    program.refuse("fcntl", program.bits(1, INT, F_SETSIG))
    program.refuse("ioctl", program.bits(1, INT, TIOCSPTLCK))
    # ninja makes a group for every compiler, and fails where that fails: it is told that there is one.
    program.refuse("setpgid", error=0)


def _rests(program: _Program) -> None:
    """Little happens on behalf of what is stopped: what waits in an epoll is told of an event on the core that the event finds,
    thousands of times if there are so many, and no process is charged for it. So nothing sets an event for later: no
    timer with a descriptor (`timerfd_create`) and none that sends signals, which have one, too (`signalfd`), and no
    socket that sends or gives up at a set time. `io_setup` is another epoll. A thread's own timeouts end when it is stopped.
    """
    program.refuse("setitimer", program.bits(0, INT, ITIMER_REAL))
    for option in (SO_MAX_PACING_RATE, SO_TXTIME):
        program.refuse("setsockopt", program.bits(1, INT, SOL_SOCKET), program.bits(2, INT, option))
    for option in (TCP_CORK, TCP_DEFER_ACCEPT, TCP_USER_TIMEOUT):
        program.refuse("setsockopt", program.bits(1, INT, IPPROTO_TCP), program.bits(2, INT, option))


def _leave_others_alone(program: _Program) -> None:
    for name in ON_OTHERS:
        program.refuse(name, program.above(0, 0))
    for name in ("setpriority", "ioprio_set"):
        program.refuse(name, program.above(1, 0))
        # (which, 0) is the caller, its group or its user
        for which in (2, 3) if name == "ioprio_set" else (1, 2):
            program.refuse(name, program.bits(0, INT, which))


def filter_file(program: bytes) -> int:
    """A descriptor of the filter for one bubblewrap: it reads to the end, so no two can share one."""
    fd = os.memfd_create("pkb-seccomp", 0)
    os.write(fd, program)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
