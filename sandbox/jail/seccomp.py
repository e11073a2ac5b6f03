"""Builds the filter (seccomp) that refuses system calls which no kernel needs."""

import ctypes
import os
from typing import Any

CREATE, ADD, RESTRICT = 444, 445, 446
"""Landlock's system calls; the numbers are the same on every architecture."""
MOVE = 1 << 13
"""The right to move files between folders. Every ruleset refuses it unless a rule allows it."""
ABSTRACT_SOCKETS, SIGNALS = 1, 2
NEEDED_ABI = 6
_PR_SET_NO_NEW_PRIVS = 38
_libc = ctypes.CDLL(None, use_errno=True)


def is_available() -> bool:
    """Whether this kernel can restrict signals."""
    return int(_libc.syscall(CREATE, None, 0, 1)) >= NEEDED_ABI


def restrict() -> None:
    """Refuses signals and abstract sockets to processes outside, for this thread and all that it starts. Cannot be undone.

    Raises:
        OSError: the kernel cannot do it.
    """
    if not is_available():
        raise OSError("this kernel cannot restrict signals: Linux 6.12 with Landlock is needed")
    attributes = (ctypes.c_uint64 * 3)(MOVE, 0, ABSTRACT_SOCKETS | SIGNALS)  # files, network, scopes
    ruleset = _checked(_libc.syscall(CREATE, attributes, ctypes.sizeof(attributes), 0))
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        rule = MOVE.to_bytes(8, "little") + root.to_bytes(4, "little")
        _checked(_libc.syscall(ADD, ruleset, 1, rule, 0))
        _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        _checked(_libc.syscall(RESTRICT, ruleset, 0))
    finally:
        os.close(root)
        os.close(ruleset)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"Landlock: {os.strerror(number)}")
    return int(result)


REFUSED = (  # noqa: SIM905
    "ptrace process_vm_readv process_vm_writev unshare setns mount umount2 pivot_root move_mount fsopen fsmount fsconfig "
    "open_tree add_key keyctl request_key bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register "
    "init_module finit_module delete_module kexec_load kexec_file_load quotactl acct swapon swapoff reboot "
    "open_by_handle_at name_to_handle_at lookup_dcookie personality syslog "
    "shmget shmat msgget semget "  # System V memory exists without a process that maps it
    "memfd_secret"  # memory that no other process can read
).split()
OF_WORLDS = (  # noqa: SIM905
    "remap_file_pages "  # as mremap, see _rules
    "sched_setattr "  # it also asks for a higher clock of the core, or sets the length of time slices
    "timer_create mq_notify "  # they send SIGCONT without a running process: see _stays_stopped
    "timerfd_create timerfd_settime timerfd_gettime signalfd signalfd4 alarm io_setup"  # see _rests
).split()
"""Calls that only worlds are refused, because they are stopped and timed. Agent programs need timers."""
CLONE_NEWUSER, EXIT_SIGNAL = 0x10000000, 0xFF
SIGCONT = 18
PR_SET_PDEATHSIG, PR_SCHED_CORE, F_SETSIG, F_SETLEASE, TIOCSPTLCK = 1, 62, 10, 1024, 0x40045431
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
AF_NETLINK = 16
ITIMER_REAL, SOL_SOCKET, IPPROTO_TCP = 0, 1, 6
SO_MAX_PACING_RATE, SO_TXTIME = 47, 61
TCP_CORK, TCP_DEFER_ACCEPT, TCP_USER_TIMEOUT = 3, 9, 18
EPERM, ENOMEM, EMFILE, ENOSYS = 1, 12, 24, 38
UNKNOWN = -1
INT = 0xFFFFFFFF
"""The part of an argument that the kernel reads if it takes an int."""

ON_OTHERS = (  # noqa: SIM905
    "prlimit64 sched_setaffinity sched_setscheduler sched_setparam sched_setattr"
).split()
"""Calls whose first argument is the id of any process of the same user."""
NUMBERS = {"memfd_secret": 447}
"""Calls that an old libseccomp does not know; the numbers are the same on every architecture."""


class NoFilter(RuntimeError):
    """libseccomp is missing. The message names the package."""


def build_filter(profile: str = "full", timed: bool = True) -> bytes:
    """The filter of a profile, as bubblewrap and seccomp(2) read it.

    nested: the world can name other processes of this user, so the filter refuses calls that act on them.
    timed: for a world, which is stopped while others are timed. An agent program is not, and keeps its timers and terminals.

    Raises:
        NoFilter: pyseccomp or libseccomp is missing.
    """
    try:
        import pyseccomp
    except (ImportError, OSError, RuntimeError) as error:
        raise NoFilter(f"no system-call filter ({error}): apt-get install libseccomp2") from None
    try:
        return _rules(_Program(pyseccomp), profile, timed)
    except (OSError, ValueError) as error:
        raise NoFilter(f"no system-call filter: libseccomp refuses a rule ({error})") from None


def _rules(program: "_Program", profile: str, timed: bool) -> bytes:
    for name in (*REFUSED, *(OF_WORLDS if timed else ())):
        program.refuse(name)
    program.refuse("clone", program.bits(0, CLONE_NEWUSER, CLONE_NEWUSER))
    program.refuse("clone3", error=ENOSYS)  # a filter cannot read its flags, which are in memory
    for request in (TIOCSTI, TIOCLINUX):
        program.refuse("ioctl", program.bits(1, INT, request))
    program.refuse("fcntl", program.bits(1, INT, F_SETLEASE))  # on a file of the user, it blocks who writes to it
    program.refuse("socket", program.above(0, AF_NETLINK))  # rarer families; the system loads modules for some
    if timed:
        # It gives the judge's memory a second address, where results are not refused. realloc copies if it fails.
        program.refuse("mremap", error=ENOMEM)
        # It keeps other programs off the core's other thread.
        program.refuse("prctl", program.bits(0, INT, PR_SCHED_CORE))
        _stays_stopped(program)
        _rests(program)
        if profile != "none":  # their number is limited for a user, whose other programs would get none
            program.refuse("inotify_init", error=EMFILE)
            program.refuse("inotify_init1", error=EMFILE)
    if profile == "nested":
        _leave_others_alone(program)
    return program.export()


class _Program:
    """A filter under construction."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._filter = library.SyscallFilter(library.ALLOW)

    def refuse(self, name: str, *conditions: Any, error: int = EPERM) -> None:
        """Refuses a call if all conditions hold."""
        number = self._library.resolve_syscall(self._library.system_arch(), name)
        if number == UNKNOWN:
            number = NUMBERS.get(name, UNKNOWN)
        if number != UNKNOWN:  # otherwise this architecture has no such call
            self._filter.add_rule(self._library.ERRNO(error), number, *conditions)

    def bits(self, argument: int, mask: int, value: int) -> Any:
        """A condition: the masked bits of an argument equal value."""
        return self._library.Arg(argument, self._library.MASKED_EQ, mask, value)

    def above(self, argument: int, value: int) -> Any:
        """A condition: all 64 bits of an argument are greater than value."""
        return self._library.Arg(argument, self._library.GT, value)

    def export(self) -> bytes:
        """The filter as struct sock_filter[]."""
        with os.fdopen(os.memfd_create("pkb-seccomp"), "w+b") as file:
            self._filter.export_bpf(file)
            file.seek(0)
            return file.read()


def _stays_stopped(program: _Program) -> None:
    """Refuses every way by which a stopped world could get a SIGCONT that no running process sends.

    The ways are: a timer (`timer_create`), arriving data (`F_SETSIG`, `mq_notify`), and the end of a process. An ending process
    signals its parent (the exit signal of `clone`), its children (`PR_SET_PDEATHSIG`), a process group that it orphans
    (`setpgid`) and the session of a terminal that it hangs up (`TIOCSPTLCK` opens one).
    """
    program.refuse("clone", program.bits(0, EXIT_SIGNAL, SIGCONT))
    program.refuse("prctl", program.bits(0, INT, PR_SET_PDEATHSIG), program.bits(1, INT, SIGCONT))
    program.refuse("fcntl", program.bits(1, INT, F_SETSIG))
    program.refuse("ioctl", program.bits(1, INT, TIOCSPTLCK))
    # ninja makes a group for every compiler and fails without one, so the call returns success.
    program.refuse("setpgid", error=0)


def _rests(program: _Program) -> None:
    """Refuses events that are set for later, because they take CPU time on behalf of a stopped world.

    A stopped process that waits in an epoll is notified on the core where the event occurs, thousands of times if it
    has registered as often. No process is charged for that time. So the filter refuses timers with a descriptor
    (`timerfd_create`) and timers that send signals, which `signalfd` gives a descriptor. It also refuses sockets that
    send or give up at a set time. `io_setup` is another epoll. A thread's own timeouts end when it is stopped.
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
        # (which, 0) means the caller, its group or its user
        for which in (2, 3) if name == "ioprio_set" else (1, 2):
            program.refuse(name, program.bits(0, INT, which))


def memory_file(contents: bytes) -> int:
    """A descriptor of a file in memory, such as a filter. Each bubblewrap needs its own, because it reads to the end."""
    fd = os.memfd_create("pkb-jail", 0)
    os.write(fd, contents)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
