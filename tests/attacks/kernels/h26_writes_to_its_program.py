# expect: PASS
"""Writes to the interpreter that runs it, which other processes of the machine may run, too: through /proc, its own and others'."""

import os
import subprocess
import sys
from pathlib import Path

AGAIN = "import os, sys; fd = os.open(f'/proc/self/fd/{sys.argv[1]}', os.O_RDWR); os.pwrite(fd, os.pread(fd, 1, 0), 0); print('written')"
loot = []


def rewrite(name):
    """Opens a file and writes its own first byte to it; also by way of a program that does not run from it."""
    try:
        handle = os.open(name, os.O_PATH)
    except OSError:
        return
    try:
        fd = os.open(f"/proc/self/fd/{handle}", os.O_RDWR)
        os.pwrite(fd, os.pread(fd, 1, 0), 0)
        loot.append(str(name))
    except OSError:
        pass
    for program in (sys.executable, "/usr/bin/python3"):
        try:
            done = subprocess.run(
                [program, "-I", "-S", "-c", AGAIN, str(handle)], pass_fds=[handle], capture_output=True, timeout=20
            )
        except (OSError, subprocess.SubprocessError):
            continue
        if b"written" in done.stdout:
            loot.append(f"{name} from {program}")

if os.environ.get("RANK") == "0":
    rewrite("/proc/self/exe")
    rewrite(sys.executable)
    for process in Path("/proc").glob("[0-9]*"):
        try:
            os.close(os.open(process / "exe", os.O_RDWR))
            loot.append(str(process / "exe"))
        except OSError:
            pass
    try:
        files = list(Path("/proc/self/map_files").iterdir())
    except OSError:
        files = []
    for file in files[:50]:
        rewrite(file)
if loot:
    raise RuntimeError(f"the attack worked: {loot}")
