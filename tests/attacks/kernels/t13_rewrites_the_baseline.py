# expect: PASS
"""Puts a sleep into the baseline's file, and into the harness's: it can write neither."""

from pathlib import Path

import problems
import sandbox

loot = []
for folder in (Path(problems.__file__).parent, Path(sandbox.__file__).parent):
    for file in [*folder.rglob("baseline.py"), *folder.glob("*.py")][:40]:
        try:
            with file.open("r+b"):
                loot.append(str(file))
        except OSError:
            pass
    try:
        (folder / "pkb-attack-new.py").write_text("")
        loot.append(str(folder))
    except OSError:
        pass
if loot:
    raise RuntimeError(f"the attack worked: {loot}")
