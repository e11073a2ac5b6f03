# expect: PASS
"""System calls that have broken kernels before: namespaces, io_uring, bpf, perf, keys, userfaultfd, odd socket families."""

import ctypes
import platform
import socket

libc = ctypes.CDLL(None, use_errno=True)
X86 = {
    "unshare": 272,
    "setns": 308,
    "mount": 165,
    "io_uring_setup": 425,
    "bpf": 321,
    "perf_event_open": 298,
    "keyctl": 250,
    "add_key": 248,
    "userfaultfd": 323,
    "clone3": 435,
    "ptrace": 101,
    "open_by_handle_at": 304,
    "kexec_load": 246,
    "init_module": 175,
    "shmget": 29,
    "personality": 135,
    "fsopen": 430,
}
ARM = {
    "unshare": 97,
    "setns": 268,
    "mount": 40,
    "io_uring_setup": 425,
    "bpf": 280,
    "perf_event_open": 241,
    "keyctl": 219,
    "add_key": 217,
    "userfaultfd": 282,
    "clone3": 435,
    "ptrace": 117,
    "open_by_handle_at": 265,
    "kexec_load": 104,
    "init_module": 105,
    "shmget": 194,
    "personality": 92,
    "fsopen": 430,
}
EPERM, ENOSYS = 1, 38
loot = []
for name, number in (X86 if platform.machine() == "x86_64" else ARM).items():
    ctypes.set_errno(0)
    first = 0x10000000 if name in ("unshare", "clone3") else 0
    done = libc.syscall(number, first, 0, 0, 0, 0, 0)
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
if loot:
    raise RuntimeError(f"the attack worked: {loot}")
