# expect: PASS
"""Asks for 64 GiB in every folder that it can write, and writes where nobody should."""

import os

if os.access("@HOME_CANARY@", os.R_OK):
    raise RuntimeError("no jail: not tried")
loot = []
for folder in ("/", "/dev", "/dev/shm", "/tmp", "/var/tmp", "/usr", "/etc", "/run", "/proc", "/sys"):
    try:
        with open(f"{folder}/pkb-attack-{os.getpid()}", "wb") as file:
            if folder not in ("/tmp", "/dev/shm"):
                loot.append(folder)
            try:
                os.posix_fallocate(file.fileno(), 0, 64 << 30)
                loot.append(f"64 GiB in {folder}")
            except OSError:
                file.write(bytes(32 << 20))
    except OSError:
        pass
if loot:
    raise RuntimeError(f"the attack worked: {loot}")
