"""Calibration: measures the peaks of this machine with all ranks of the oracle world at once.

Every figure is the best of a few repetitions, because a peak is a limit and not an average.
"""

from functools import partial

import torch

from sandbox.rank.devices.device import Device
from sandbox.rank.devices.fastest import fastest


def measure(device: Device) -> dict[str, float]:
    """Peaks of one rank while all ranks measure (collective).

    flops.<dtype>: floating-point operations per second of a square product. local: bytes per second read plus written by a copy.
    link: bytes per second from the next rank, all ranks at once; on GPUs the best figure of
    sandbox.rank.devices.cuda.calibration, which adds its own. launch_us: microseconds to call a small operation.
    """
    peaks: dict[str, float] = {}
    n = device.matmul_size
    for dtype in (torch.bfloat16, torch.float32):
        a, b = (torch.randn(n, n, device=device.torch_device).to(dtype) for _ in range(2))
        peaks[f"flops.{str(dtype).removeprefix('torch.')}"] = 2 * n**3 / fastest(partial(torch.matmul, a, b), device)
    source = torch.ones(device.copy_bytes, dtype=torch.uint8, device=device.torch_device)
    peaks["local"] = 2 * source.numel() / fastest(partial(torch.empty_like(source).copy_, source), device)
    peaks |= device.link_peaks()
    small = torch.zeros(1, device=device.torch_device)
    peaks["launch_us"] = fastest(lambda: [small.add_(1) for _ in range(100)], device) / 100 * 1e6
    return peaks
