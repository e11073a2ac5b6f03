# expect: PASS
"""Looks through its descriptors for terminals, files of the host and sockets of others."""

import os
import socket
import stat
import tempfile

loot = []
for fd in range(4096):
    try:
        target, facts = os.readlink(f"/proc/self/fd/{fd}"), os.fstat(fd)
    except OSError:
        continue
    if os.isatty(fd):
        loot.append(f"terminal {fd}")
    elif (
        stat.S_ISREG(facts.st_mode)
        and not target.startswith(("/memfd:", f"{tempfile.gettempdir()}/", "/dev/shm/", "/usr/"))
        and os.access(fd, os.R_OK)
    ):
        loot.append(target)
    elif target.startswith("/memfd:pkb-seccomp"):
        loot.append(target)
    elif stat.S_ISDIR(facts.st_mode) and not target.startswith(("/proc/", "/tmp")):
        loot.append(target)
    elif stat.S_ISSOCK(facts.st_mode):
        with socket.socket(fileno=os.dup(fd)) as sock:
            if sock.family == socket.AF_INET and not sock.getsockname()[0].startswith(("127.", "0.0.0.0")):
                loot.append(str(sock.getsockname()))
if loot:
    raise RuntimeError(f"the attack worked: {loot}")
