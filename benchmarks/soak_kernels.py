"""Kernels of the soak, for problem 1: one for each way in which a run can end, each ending as early as possible."""

from dataclasses import dataclass

from sandbox.protocol.verdict import Verdict

_ADDS = """
    total = tensor.clone()
    dist.all_reduce(total)
    return total
"""


@dataclass(frozen=True)
class SoakKernel:
    """A kernel and its expected verdict."""

    name: str
    source: str
    verdict: Verdict


SOAK_KERNELS = (
    SoakKernel("good", f"import torch.distributed as dist\n\n\ndef solution(tensor):{_ADDS}", Verdict.PASS),
    SoakKernel("wrong", "def solution(tensor):\n    return tensor.clone()\n", Verdict.WRONG_RESULT),
    SoakKernel(
        "hanging",
        f"import time\nimport torch.distributed as dist\n\n\ndef solution(tensor):\n    time.sleep(3600){_ADDS}",
        Verdict.TIMEOUT,
    ),
    SoakKernel("crashing", "import os\n\n\ndef solution(tensor):\n    os.abort()\n", Verdict.CRASH),
    SoakKernel(
        "flooding", 'def solution(tensor):\n    while True:\n        print("x" * 65536)\n', Verdict.OUTPUT_FLOOD
    ),
    # Children of children that nobody waits for, with files of their own. The end of a run must remove them.
    SoakKernel(
        "forking",
        f"""import os
import tempfile
import time
import torch.distributed as dist

for _ in range(10):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            tempfile.mkstemp()
            open(f"/dev/shm/pkb-soak-{{os.getpid()}}", "w").write("x" * 65536)
        time.sleep(3600)
        os._exit(0)


def solution(tensor):{_ADDS}""",
        Verdict.PASS,
    ),
)
