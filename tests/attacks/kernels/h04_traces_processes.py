# expect: PASS
"""ptrace, process_vm_readv and pidfd_getfd against everything that it can see, and the referee."""

import ctypes
import os
import platform

libc = ctypes.CDLL(None, use_errno=True)
READV, GETFD = (310, 438) if platform.machine() == "x86_64" else (270, 438)
ATTACH, SEIZE = 16, 0x4206
loot = []
buffer = ctypes.create_string_buffer(8)


class Part(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))

try:
    pids = {int(name) for name in os.listdir("/proc") if name.isdigit()}
except OSError:
    pids = set(range(1, 400)) | set(range(os.getppid() - 100, os.getppid() + 100))
for pid in {@REFEREE_PID@, @BYSTANDER_PID@, *pids} - {os.getpid()}:
    if libc.ptrace(SEIZE, pid, 0, 0) == 0 or libc.ptrace(ATTACH, pid, 0, 0) == 0:
        loot.append(f"ptrace {pid}")
    here, there = Part(ctypes.addressof(buffer), 8), Part(0x400000, 8)
    ctypes.set_errno(0)
    done = libc.syscall(READV, pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    if done >= 0 or ctypes.get_errno() == 14:
        loot.append(f"process_vm_readv {pid}")
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        continue
    try:
        line = open(f"/proc/{pid}/cmdline", "rb").read()
    except OSError:
        line = b"sandbox.rank." if abs(pid - os.getppid()) < 20 and pid not in (@REFEREE_PID@, @BYSTANDER_PID@) else b"?"
    if b"sandbox.rank." not in line and libc.syscall(GETFD, handle, 0, 0) >= 0:
        loot.append(f"pidfd_getfd {pid} {line[:40]}")
if loot:
    raise RuntimeError(f"the attack worked: {loot}")
