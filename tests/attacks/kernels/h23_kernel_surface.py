# expect: PASS
"""System calls that have broken kernels before: namespaces, io_uring, bpf, perf, keys, userfaultfd, leases, odd sockets."""

import ctypes
import fcntl
import platform
import socket
import sys

libc = ctypes.CDLL(None, use_errno=True)
ON_X86_AND_ARM = {
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "io_uring_setup": (425, 425),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "userfaultfd": (323, 282),
    "clone3": (435, 435),
    "ptrace": (101, 117),
    "open_by_handle_at": (304, 265),
    "kexec_load": (246, 104),
    "init_module": (175, 105),
    "shmget": (29, 194),
    "personality": (135, 92),
    "fsopen": (430, 430),
}
EPERM, ENOSYS = 1, 38
loot = []
for name, numbers in ON_X86_AND_ARM.items():
    ctypes.set_errno(0)
    first = 0x10000000 if name in ("unshare", "clone3") else 0
    done = libc.syscall(numbers[platform.machine() != "x86_64"], first, 0, 0, 0, 0, 0)
    if ctypes.get_errno() not in (EPERM, ENOSYS):  # anything else came from the kernel's own code
        loot.append(f"{name}: {done}, errno {ctypes.get_errno()}")
for family in (38, 17, 40):
    try:
        socket.socket(family, socket.SOCK_STREAM if family == 40 else socket.SOCK_RAW if family == 17 else 5).close()
        loot.append(f"socket family {family}")
    except PermissionError:
        pass
    except OSError as error:
        loot.append(f"socket family {family}: {error}")
try:
    fcntl.fcntl(open(sys.executable), fcntl.F_SETLEASE, fcntl.F_RDLCK)
    loot.append("a lease of the user's file")
except OSError as error:
    if error.errno != EPERM:
        loot.append(f"a lease: {error}")
loot += ["a watcher of files, of which its user has 128"] * (libc.inotify_init1(0) >= 0)
if loot:
    raise RuntimeError(f"the attack worked: {loot}")
