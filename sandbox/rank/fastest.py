"""The time of the quickest of a few repetitions, all ranks at once, for calibration. Rank side (imports torch)."""

import time
from collections.abc import Callable

import torch.distributed as dist

from sandbox.rank.devices.device import Device

REPETITIONS = 7


def fastest(work: Callable[[], object], device: Device, finish: bool = True) -> float:
    """Seconds of the quickest repetition, after one that does not count; all ranks start together (collective).

    finish: until the device is done with it; otherwise only as long as the call takes.
    """
    work()
    device.synchronize()
    best = float("inf")
    for _ in range(REPETITIONS):
        dist.barrier()
        device.synchronize()
        started = time.perf_counter()
        work()
        if finish:
            device.synchronize()
        best = min(best, time.perf_counter() - started)
        device.synchronize()
    return best
