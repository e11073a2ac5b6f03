"""Inputs of problem 44: a gradient whose blocks differ wildly in size."""

from collections.abc import Callable

import torch
import torch.distributed as dist

from problems.setting import RankSetting
from problems.shared.int8_blocks import dequantize, quantize


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """flat_grad [n]: N(0, 1) as upstream has it.

    Meaningful: every block (of every rank) times its own exp(N(0, 1)), one block in 32 all zero, one in 32 with a single
    element 30 times its size.
    """
    n, q = setting.sizes.n, setting.sizes.q
    gradient = setting.randn(n)
    if setting.distribution == "upstream":
        return {"flat_grad": gradient}
    blocks = -(-n // q)
    amplitude = setting.randn(blocks, dtype=torch.float32).exp()
    kind = setting.randint(0, 32, (blocks,))
    amplitude[kind == 0] = 0.0
    factor = amplitude[:, None].repeat(1, q)
    place = setting.randint(0, q, (blocks, 1))
    outlier = torch.where(kind == 1, 30.0, 1.0)[:, None]
    factor.scatter_(1, place, factor.gather(1, place) * outlier)
    gradient *= factor.view(-1)[:n].to(gradient.dtype)
    return {"flat_grad": gradient}


def oracle(tensors: dict[str, torch.Tensor], setting: RankSetting, solution: Callable) -> torch.Tensor:
    """The same codes (they are float32 arithmetic by definition), averaged in float64."""
    flat_grad = tensors["flat_grad"]
    total = dequantize(*quantize(flat_grad, setting.sizes.q), flat_grad.numel()).to(torch.float64)
    dist.all_reduce(total, op=dist.ReduceOp.SUM)
    return total / setting.world
