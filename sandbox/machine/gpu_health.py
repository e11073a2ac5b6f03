"""A check of GPUs after a world was killed: free of its processes, and healthy. Host side: NVML, no CUDA."""

import time
from collections.abc import Collection, Sequence

from sandbox.machine import nvml
from sandbox.machine.placement import RankGpu

GONE_SECONDS = 5.0
"""A killed process's context is usually gone within a tenth of a second, with all of its memory."""
_LOOK_SECONDS = 0.005


def gpu_fault(ours: Sequence[RankGpu], pids: Collection[int], seconds: float = GONE_SECONDS) -> str:
    """What keeps the next run from these GPUs, in a line; empty when nothing does, or when NVML cannot be asked.

    pids: the killed world's ranks. Waits until none of them has a context, and with it memory, on any of the GPUs.
    """
    try:
        gpus = [gpu for gpu in nvml.gpus() if gpu.minor in {rank.minor for rank in ours}]
        until = time.monotonic() + seconds
        while held := [gpu.index for gpu in gpus if nvml.compute_pids(gpu) & set(pids)]:
            if time.monotonic() > until:
                return f"a killed kernel still holds GPU {', '.join(map(str, held))} after {seconds:.0f} s"
            time.sleep(_LOOK_SECONDS)
        for gpu in gpus:
            if words := nvml.recovery(gpu):
                return f"GPU {gpu.index}: {words}"
    except nvml.NvmlMissing as missing:
        # Without NVML `doctor` says so; the baseline world's own next call still shows a GPU that does not work.
        return str(missing) if nvml.says_lost(missing) else ""
    return ""
