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
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, AF_ALG, AF_VSOCK = 1, 2, 10, 16, 17, 38, 40
ITIMER_REAL, SOL_SOCKET = 0, 1
SO_MAX_PACING_RATE, SO_TXTIME = 47, 61
TCP_CORK, TCP_DEFER_ACCEPT, TCP_USER_TIMEOUT = 3, 9, 18
STREAM, SEQPACKET, SOCK_TYPE_MASK = 1, 5, 0xF
IPPROTO_TCP, TCP_FASTOPEN_CONNECT, MSG_FASTOPEN = 6, 30, 0x20000000
EPERM, ENOSYS, EOPNOTSUPP = 1, 38, 95
UNKNOWN = -1
INT = 0xFFFFFFFF
"""The part of an argument that the kernel looks at where it takes an int: the rest may hold anything."""

ON_OTHERS = (  # noqa: SIM905
    "prlimit64 sched_setaffinity sched_setscheduler sched_setparam sched_setattr"
).split()
"""Take a process id first; of the same user's, any."""
UNRULED = (  # noqa: SIM905
    "chmod fchmod fchmodat fchmodat2 chown lchown fchown fchownat setxattr lsetxattr fsetxattr setxattrat removexattr "
    "lremovexattr fremovexattr removexattrat file_setattr utime utimes utimensat futimesat inotify_add_watch fanotify_init "
    "mq_open mq_unlink shmctl semctl semop semtimedop msgctl msgsnd msgrcv"
).split()
"""What Landlock does not rule: every file's owner, mode, attributes, times and news of it, System V and POSIX queues."""
NUMBERS = {
    "memfd_secret": 447,
    "fchmodat2": 452,
    "setxattrat": 463,
    "removexattrat": 466,
    "file_setattr": 469,
}
"""Calls younger than many an installed libseccomp; the same numbers on every architecture."""
SUPERVISED = ("connect", "bind", "listen")


class NoFilter(RuntimeError):
    """libseccomp is not there; the message says what to install."""


def build_filter(profile: str = "full") -> bytes:
    """The filter of a profile, as bubblewrap and seccomp(2) read it.

    nested: other processes of this user can be named, so none may be acted upon. landlock: beside that there is no network of
    its own, so connections are left to a supervisor (sandbox/jail/supervisor.py) and sockets that need none are refused.

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
    if profile in ("nested", "landlock"):
        _leave_others_alone(program)
    if profile == "landlock":
        for name in UNRULED:
            program.refuse(name)
        program.refuse(
            "fallocate", error=EOPNOTSUPP
        )  # takes a disk at once; writing is seen while it goes on
        _streams_only(program)
        for name in SUPERVISED:
            program.ask(name)
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

    def ask(self, name: str) -> None:
        """The call is the supervisor's to make."""
        self._filter.add_rule(self._library.NOTIFY, name)

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


def _streams_only(program: _Program) -> None:
    """TCP, Unix streams and the list of interfaces are left. No datagram, and no connection that a send would open."""
    streams = (AF_UNIX, AF_INET, AF_INET6)
    for family in range(AF_NETLINK):
        if family not in streams:
            program.refuse("socket", program.bits(0, INT, family))
    program.refuse("socket", program.above(0, AF_NETLINK))
    for kind in range(SOCK_TYPE_MASK + 1):
        if kind != STREAM:
            for family in streams:
                program.refuse("socket", program.bits(0, INT, family), program.bits(1, SOCK_TYPE_MASK, kind))
            if kind != SEQPACKET:  # a pair of datagram sockets can still send to any path
                program.refuse("socketpair", program.bits(1, SOCK_TYPE_MASK, kind))
    for family in (AF_INET, AF_INET6):
        program.refuse("socket", program.bits(0, INT, family), program.above(2, IPPROTO_TCP))
    program.refuse("socket", program.bits(0, INT, AF_NETLINK), program.above(2, 0))
    for name, flags in (("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3)):
        program.refuse(name, program.bits(flags, MSG_FASTOPEN, MSG_FASTOPEN))
    program.refuse(
        "setsockopt", program.bits(1, INT, IPPROTO_TCP), program.bits(2, INT, TCP_FASTOPEN_CONNECT)
    )


def filter_file(program: bytes) -> int:
    """A descriptor of the filter for one bubblewrap: it reads to the end, so no two can share one."""
    fd = os.memfd_create("pkb-seccomp", 0)
    os.write(fd, program)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
