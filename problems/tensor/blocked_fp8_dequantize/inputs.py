"""Inputs of problem 20: a block-scaled chunk of 8-bit codes for every rank."""

import torch

from problems.setting import RankSetting, SizesRefused


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """local_y [W, M, N]: random E4M3 codes (no NaN), carried as uint8; local_s [W, M·N/block]: float32 in
    2^-20 .. 2^20.

    The run dtype plays no part in that. Upstream: both N(0, 1) in the run dtype.
    """
    s, world = setting.sizes, setting.world
    if s.M * s.N % s.block or s.block & (s.block - 1):
        raise SizesRefused(f"M·N={s.M * s.N} with block={s.block}: the block must be a power of two and divide M·N")
    blocks = s.M * s.N // s.block
    if setting.distribution == "upstream":
        return {"local_y": setting.randn(world, s.M, s.N), "local_s": setting.randn(world, blocks)}
    # 127 magnitudes (0x7f is NaN) with either sign.
    drawn = setting.randint(0, 254, (world, s.M, s.N), dtype=torch.uint8)
    codes = torch.where(drawn < 127, drawn, drawn + 1)
    scales = torch.exp2(setting.rand(world, blocks, dtype=torch.float32) * 40 - 20)
    return {"local_y": codes, "local_s": scales}


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> dict[str, torch.Tensor]:
    """Codes that are carried as uint8 are E4M3."""
    codes = tensors["local_y"]
    return {"local_y": codes.view(torch.float8_e4m3fn) if codes.dtype == torch.uint8 else codes}
