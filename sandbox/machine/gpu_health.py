"""Checks GPUs through NVML after a world was killed: its processes are gone, and no GPU has a fault."""

import time
from collections.abc import Collection, Sequence

from sandbox.machine import nvml
from sandbox.machine.placement import RankGpu

GONE_SECONDS = 5.0
"""Limit for a killed process's context to disappear. It usually takes 0.1 s."""
_CHECK_SECONDS = 0.005


def gpu_fault(ours: Sequence[RankGpu], pids: Collection[int], seconds: float = GONE_SECONDS) -> str:
    """The fault that prevents the next run on these GPUs, in one line; empty if there is none or NVML is missing.

    pids: the killed world's ranks. Waits until none of them has a context on any of the GPUs.
    """
    try:
        gpus = [gpu for gpu in nvml.gpus() if gpu.minor in {rank.minor for rank in ours}]
        until = time.monotonic() + seconds
        while held := [gpu.index for gpu in gpus if nvml.compute_pids(gpu) & set(pids)]:
            if time.monotonic() > until:
                return f"a killed kernel still holds GPU {', '.join(map(str, held))} after {seconds:.0f} s"
            time.sleep(_CHECK_SECONDS)
        for gpu in gpus:
            if words := nvml.recovery(gpu):
                return f"GPU {gpu.index}: {words}"
    except nvml.NvmlMissing as missing:
        # `doctor` reports that NVML is missing. The oracle world's next call still detects a broken GPU.
        return str(missing) if nvml.says_lost(missing) else ""
    return ""
