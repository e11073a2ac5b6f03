"""Inputs of problem 27: rows by destination, and how many of them go where."""

import torch

from problems.setting import RankSetting, SizesRefused
from problems.shared.inputs.dense import finite_bits

HOT = 4.0


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """local_tensor [M, N]; input_split_sizes and output_split_sizes [W] int64: rows to and from each rank; M are sent.

    Meaningful: Zipf-like shares in another order on every rank, one hot destination, one pair that exchanges nothing, any
    finite values. Upstream's: equal shares and N(0, 1), for which W must divide M.
    """
    m, world, device = setting.sizes.M, setting.world, setting.device
    if setting.distribution == "upstream":
        if m % world:
            raise SizesRefused(f"upstream's equal splits need {world} ranks to divide M={m}")
        even = torch.full((world,), m // world, device=device)
        rows = setting.randn(m, setting.sizes.N)
        return {"local_tensor": rows, "input_split_sizes": even, "output_split_sizes": even}
    share = 1 / (1 + setting.rand(world, world, shared=True, dtype=torch.float32).argsort(dim=1).to(torch.float64))
    index = torch.arange(world, device=device)
    hot, source = setting.randint(0, world, (2,), shared=True).unbind()
    share[:, hot] *= HOT
    if world > 1:
        silent = (source + setting.randint(1, world, (1,), shared=True)) % world
        share[(index[:, None] == source) & (index == silent)] = 0
    ends = (share.cumsum(1) / share.sum(1, keepdim=True) * m).round().to(torch.int64)
    counts = ends.diff(dim=1, prepend=torch.zeros_like(ends[:, :1]))
    return {
        "local_tensor": finite_bits(setting, m, setting.sizes.N),
        "input_split_sizes": counts[setting.rank],
        "output_split_sizes": counts[:, setting.rank],
    }
