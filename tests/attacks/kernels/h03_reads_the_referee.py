# expect: PASS
"""Looks for the referee's memory, environment and descriptors in /proc."""

import os
from pathlib import Path

loot = []
for process in [Path("/proc/@REFEREE_PID@"), *Path("/proc").glob("[0-9]*")]:
    try:
        line = (process / "cmdline").read_bytes()
    except OSError:
        continue
    if b"sandbox.rank." in line or line.startswith((b"bwrap", b"/usr/bin/bwrap")) or process.name == str(os.getpid()):
        continue  # the world itself
    for name in ("mem", "environ", "maps"):
        try:
            if (process / name).open("rb").read(1):
                loot.append(f"{process}/{name} of {line[:60]}")
        except OSError:
            pass
for process in Path("/proc").glob("[0-9]*"):
    try:
        if b"PKB_CANARY_TOKEN" in (process / "environ").read_bytes():
            loot.append(f"{process}/environ")
    except OSError:
        pass
if loot:
    raise RuntimeError(f"the attack worked: {loot}")
