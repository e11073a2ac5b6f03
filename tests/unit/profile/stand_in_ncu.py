"""A stand-in for ncu on machines without a GPU: it runs its application unchanged and prints a recorded report.

In application replay it runs the application twice, as ncu does more often for its passes. The replay mode in the file
`hangs` beside it never ends. The report is in the file `report.csv` beside it.
"""

import subprocess
import sys
import time
from pathlib import Path

here = Path(__file__).parent
words = sys.argv[1:]
if "--import" in words:
    print((here / "report.csv").read_text(), end="")
    sys.exit(0)
mode, report = (words[words.index(option) + 1] for option in ("--replay-mode", "--export"))
if (here / "hangs").exists() and (here / "hangs").read_text() == mode:
    time.sleep(600)
application = words[words.index("-m") - 1 :]
status = 0
for number in range(1, 3 if mode == "application" else 2):
    print(f'==PROF== Profiling "k": Application replay pass {number}', flush=True)
    status = status or subprocess.run(application, check=False).returncode
Path(report).write_bytes(b"a report")
sys.exit(status)
