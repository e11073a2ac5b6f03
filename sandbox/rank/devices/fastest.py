"""The time of the fastest of a few repetitions with all ranks at once, for calibration."""

import time
from collections.abc import Callable

import torch.distributed as dist

from sandbox.rank.devices.device import Device

REPETITIONS = 7


def fastest(work: Callable[[], object], device: Device, finish: bool = True) -> float:
    """Seconds of the fastest repetition after a warm-up. All ranks start together (collective).

    finish: measure until the device is done; False: only the call.
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
