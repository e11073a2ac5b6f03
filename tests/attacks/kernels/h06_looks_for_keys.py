# expect: PASS
"""Looks for keys in environments, home folders, /run, /etc and the harness's parent folders."""

import os
from pathlib import Path

loot = [name for name in os.environ if "CANARY" in name or name.upper().endswith(("_API_KEY", "_TOKEN", "_SECRET_KEY"))]
for environment in Path("/proc").glob("[0-9]*/environ"):
    try:
        if b"PKB_CANARY_TOKEN" in environment.read_bytes():
            loot.append(str(environment))
    except OSError:
        pass
for path in ["@HOME_CANARY@", "/etc/shadow", "/root/.bashrc", "/root/.netrc", "/root/.ssh", "/root/.aws", "/run"]:
    try:
        if Path(path).is_dir():
            loot += [f"{path}/{name}" for name in os.listdir(path)]
        else:
            loot.append(path if Path(path).read_bytes() else "")
    except OSError:
        pass
loot = [found for found in loot if found]
if loot:
    raise RuntimeError(f"the attack worked: {loot}")
