"""Calibration: the peaks of this machine, measured by all ranks of the baseline world at once. Rank side (imports torch).

Every figure is the best of a few repetitions: a peak is what the hardware can do, not what it does on average.
"""

from functools import partial

import torch

from sandbox.rank.devices.device import Device
from sandbox.rank.fastest import fastest


def measure(device: Device) -> dict[str, float]:
    """Peaks of one rank while all ranks measure (collective).

    flops.<dtype>: floating-point operations a second of a square product. local: bytes a second read plus written by a copy.
    link: bytes a second from the next rank, every rank at once; on GPUs by the best of the ways in
    sandbox.rank.devices.cuda.calibration, whose figures are added. launch_us: a small operation as called.
    """
    peaks: dict[str, float] = {}
    n = device.matmul_size
    for dtype in (torch.bfloat16, torch.float32):
        a, b = (torch.randn(n, n, device=device.torch_device).to(dtype) for _ in range(2))
        peaks[f"flops.{str(dtype).removeprefix('torch.')}"] = (
            2 * n**3 / fastest(partial(torch.matmul, a, b), device)
        )
    source = torch.ones(device.copy_bytes, dtype=torch.uint8, device=device.torch_device)
    peaks["local"] = 2 * source.numel() / fastest(partial(torch.empty_like(source).copy_, source), device)
    peaks |= device.link_peaks()
    small = torch.zeros(1, device=device.torch_device)
    peaks["launch_us"] = fastest(lambda: [small.add_(1) for _ in range(100)], device) / 100 * 1e6
    return peaks
