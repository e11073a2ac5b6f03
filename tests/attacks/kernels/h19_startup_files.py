# expect: PASS
"""Leaves start-up files for later interpreters: every folder that they import from is read-only."""

import os
import sys

loot = []
for folder in [*sys.path, sys.prefix, os.path.dirname(os.__file__)]:
    for name in ("pkb-attack-start.pth", "sitecustomize.py", "usercustomize.py"):
        path = os.path.join(folder, name)
        if folder and not os.path.exists(path) and not folder.startswith("/tmp"):
            try:
                with open(path, "x") as file:
                    file.write("")
                loot.append(path)
                os.unlink(path)
            except OSError:
                pass
sys.modules["sandbox.rank.contender"] = sys.modules["sandbox.protocol.frames"] = sys
if loot:
    raise RuntimeError(f"the attack worked: {loot}")
