"""What this machine can do at the most, measured by the baseline world's ranks all at once. Rank side (imports torch).

Every figure is the best of a few repetitions: a peak is what the hardware can do, not what it does on average.
"""

from functools import partial

import torch
import torch.distributed as dist

from sandbox.devices import Device
from sandbox.fastest import fastest

MATMUL = {"cpu": 384, "cuda": 8192}
COPY_BYTES = {"cpu": 32 << 20, "cuda": 1 << 30}
LINK_BYTES = 16 << 20


def measure(device: Device) -> dict[str, float]:
    """Peaks of one rank while all ranks measure (collective).

    flops.<dtype>: floating-point operations a second of a square product. local: bytes a second read plus written by a copy.
    link: bytes a second from the next rank, every rank at once; on GPUs by the best of the ways in sandbox.gpu_calibration,
    whose figures are added. launch_us: a small operation as called.
    """
    kind = device.torch_device.type
    peaks: dict[str, float] = {}
    n = MATMUL[kind]
    for dtype in (torch.bfloat16, torch.float32):
        a, b = (torch.randn(n, n, device=device.torch_device).to(dtype) for _ in range(2))
        peaks[f"flops.{str(dtype).removeprefix('torch.')}"] = (
            2 * n**3 / fastest(partial(torch.matmul, a, b), device)
        )
    source = torch.ones(COPY_BYTES[kind], dtype=torch.uint8, device=device.torch_device)
    peaks["local"] = 2 * source.numel() / fastest(partial(torch.empty_like(source).copy_, source), device)
    if kind == "cuda":
        from sandbox import gpu_calibration

        peaks |= gpu_calibration.measure(device)
        peaks["link"] = max(
            (peaks[way] for way in ("link.copy_engine", "link.sm", "link.tma") if way in peaks), default=0.0
        )
    else:
        peaks["link"] = _link(device, LINK_BYTES)
    small = torch.zeros(1, device=device.torch_device)
    peaks["launch_us"] = fastest(lambda: [small.add_(1) for _ in range(100)], device) / 100 * 1e6
    return peaks


def _link(device: Device, size: int) -> float:
    """Bytes a second out of the next rank's memory through the symmetric heap; with one rank there is no link: 0."""
    if dist.get_world_size() == 1:
        return 0.0
    from sandbox.kit import symm

    mine = symm.empty((size,), torch.uint8, tag="calibration")
    mine.fill_(1)
    peer = symm.peers(mine)[(dist.get_rank() + 1) % dist.get_world_size()]
    return size / fastest(partial(torch.empty_like(mine).copy_, peer), device)
