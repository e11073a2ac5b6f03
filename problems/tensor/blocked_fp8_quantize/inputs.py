"""Inputs of problem 19: rows whose blocks differ widely in size, without elements that sit on a rounding
boundary.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from problems.setting import RankSetting, SizesRefused

LARGEST = 448.0
"""The largest E4M3 number."""


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """local_tensor [M, N]: N(0, 1), each block times 2^u with u uniform in [-20, 20] ([-4, 4] in float16).

    One block in 16 is zero, and one in 16 has an outlier that pushes the rest towards zero. Upstream: N(0, 1)
    throughout.
    """
    m, n, block = setting.sizes.M, setting.sizes.N, setting.sizes.block
    if n % block or block & (block - 1):
        raise SizesRefused(f"N={n} with block={block}: the block must be a power of two and divide N")
    x = setting.randn(m, n // block, block)
    if setting.distribution != "upstream":
        reach = 4 if setting.dtype == torch.float16 else 20
        exponent = (setting.rand(m, n // block, 1, dtype=torch.float32) * 2 - 1) * reach
        kind = setting.randint(0, 16, (m, n // block, 1))
        x = (x * torch.exp2(exponent)).masked_fill(kind == 0, 0.0)
        place = setting.randint(0, block, (m, n // block, 1))
        x.scatter_(-1, place, x.gather(-1, place) * torch.where(kind == 1, 512.0, 1.0))
        x = x.to(setting.dtype)
    return {"local_tensor": _off_ties(x).view(m, n)}


def _off_ties(x: torch.Tensor) -> torch.Tensor:
    """x [..., block] with those elements moved by a 128th that lie within 1/1000 of a step of a rounding
    boundary.

    In bfloat16 one element in 200 is an exact tie, and the last bit of a division decides it: a division that
    is good to an ulp or two, as GPUs have them, would get another code. After this every correct quantiser
    gets the same codes.
    """
    magnitude = x.abs().to(torch.promote_types(x.dtype, torch.float32))
    largest = magnitude.amax(dim=-1, keepdim=True)
    code = magnitude * (LARGEST / torch.where(largest == 0, 1.0, largest))
    step = torch.exp2(torch.floor(torch.log2(code.clamp(min=2.0**-6))) - 3)
    tied = ((code / step).frac() - 0.5).abs() < 1e-3
    return torch.where(tied, (x * (1 - 2.0**-7)).to(x.dtype), x)


def oracle(tensors: dict[str, torch.Tensor], setting: RankSetting, solution: Callable[..., Any]) -> Any:
    """The baseline's codes (they are unambiguous, see `_off_ties`) and float64 scales of all ranks."""
    x, block = tensors["local_tensor"], setting.sizes.block
    codes, _ = solution(x, block)
    scales = x.to(torch.float64).view(x.shape[0], -1, block).abs().amax(dim=-1) / LARGEST
    gathered = scales.new_empty((setting.world * scales.shape[0], scales.shape[1]))
    dist.all_gather_into_tensor(gathered, scales)
    return codes, gathered


def canonical(outputs: Any, setting: RankSetting) -> Any:
    """Scales as base-2 logarithms: a relative error of a small scale is as wrong as one of a large scale."""
    if type(outputs) is not tuple or len(outputs) != 2 or type(outputs[1]) is not torch.Tensor:
        return outputs
    codes, scales = outputs
    return codes, torch.log2(scales.to(torch.float64)).to(scales.dtype)
