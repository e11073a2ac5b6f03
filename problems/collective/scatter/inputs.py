"""Inputs of problem 5: the root's stacked chunks, templates elsewhere, and the root, which changes from call
to call.
"""

import torch

from problems.setting import RankSetting
from problems.shared.inputs.dense import finite_bits, root


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """On the root tensor [W, M, N] of random finite bit patterns, elsewhere [M, N] of NaN: reading it shows.

    Upstream: root 0, chunk i the constant i + 1, zeros elsewhere.
    """
    m, n = setting.sizes.M, setting.sizes.N
    src = root(setting)
    upstream = setting.distribution == "upstream"
    if setting.rank != int(src):
        blank = 0.0 if upstream else float("nan")
        tensor = torch.full((m, n), blank, dtype=setting.dtype, device=setting.device)
    elif upstream:
        values = torch.arange(1, setting.world + 1, dtype=setting.dtype, device=setting.device)
        tensor = values.view(-1, 1, 1).expand(-1, m, n).contiguous()
    else:
        tensor = finite_bits(setting, setting.world, m, n)
    return {"tensor": tensor, "src": src}
