"""System calls that no kernel needs, as a filter for bubblewrap's --seccomp. The filter itself is libseccomp's work."""

import os

REFUSED = (  # noqa: SIM905
    "ptrace process_vm_readv process_vm_writev unshare setns mount umount2 pivot_root move_mount fsopen fsmount fsconfig "
    "open_tree add_key keyctl request_key bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register "
    "init_module finit_module delete_module kexec_load kexec_file_load quotactl acct swapon swapoff reboot "
    "open_by_handle_at name_to_handle_at lookup_dcookie personality "
    "shmget shmat msgget semget"  # System V memory that no process maps would count for nobody
).split()
CLONE_NEWUSER = 0x10000000
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
AF_ALG, AF_PACKET, AF_VSOCK = 38, 17, 40
EPERM, ENOSYS = 1, 38


class NoFilter(RuntimeError):
    """libseccomp is not there; the message says what to install."""


def build_filter() -> bytes:
    """The filter as bubblewrap reads it.

    Raises:
        NoFilter: pyseccomp or libseccomp is missing.
    """
    try:
        import pyseccomp
    except (ImportError, OSError, RuntimeError) as error:
        raise NoFilter(f"no system-call filter ({error}): apt-get install libseccomp2") from None
    program = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    refuse = pyseccomp.ERRNO(EPERM)
    for name in REFUSED:
        try:
            program.add_rule(refuse, name)
        except (OSError, ValueError):
            continue  # a call that this kernel or architecture does not have cannot be made either
    program.add_rule(refuse, "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, CLONE_NEWUSER, CLONE_NEWUSER))
    program.add_rule(pyseccomp.ERRNO(ENOSYS), "clone3")  # its flags lie in memory, where no filter sees them
    for request in (TIOCSTI, TIOCLINUX):
        program.add_rule(refuse, "ioctl", pyseccomp.Arg(1, pyseccomp.MASKED_EQ, 0xFFFFFFFF, request))
    for family in (AF_ALG, AF_PACKET, AF_VSOCK):
        program.add_rule(refuse, "socket", pyseccomp.Arg(0, pyseccomp.EQ, family))
    fd = os.memfd_create("pkb-seccomp")
    with os.fdopen(fd, "w+b") as file:
        program.export_bpf(file)
        file.seek(0)
        return file.read()


def filter_file(program: bytes) -> int:
    """A descriptor of the filter for one bubblewrap: it reads to the end, so no two can share one."""
    fd = os.memfd_create("pkb-seccomp", 0)
    os.write(fd, program)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
