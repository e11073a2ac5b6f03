"""FP8 (E4M3) with delayed scaling: one scale per tensor, from a history of absolute maxima."""

import torch

from problems.setting import RankSetting

LARGEST_E4M3 = 448.0
SMALLEST_MAXIMUM = 1e-12
HISTORY = 16


def next_scale(values: torch.Tensor, history: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(history after appending max |values| and dropping the oldest entry, [H] in its dtype; scale, 0-dim float32).

    The scale comes from the history's own (rounded) maxima, so it may be above or a little below max |values| / 448.
    """
    largest = values.abs().amax().to(torch.float32).to(history.dtype)
    rolled = torch.cat((history[1:], largest[None]))
    scale = rolled.amax().clamp(min=SMALLEST_MAXIMUM).to(torch.float32) / LARGEST_E4M3
    return rolled, scale


def through_fp8(values: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """values rounded to multiples of E4M3 codes times scale, in their own dtype; a true float32 division by the scale."""
    codes = (values.to(torch.float32) / scale).to(torch.float8_e4m3fn)
    return (codes.to(torch.float32) * scale).to(values.dtype)


def draw_scaled(setting: RankSetting, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(values [count] of the run dtype, amax history [16] bfloat16) of this rank.

    Upstream: N(0, 1) and a history of 1e-8. Meaningful: N(0, 1) times 10^U(-3, 0) with one element in 1024 eight times as
    large; a history around the present maximum that is sometimes 2 to 16 times above it (then codes underflow). In one trial
    of four one rank of several has nothing but zeros, in values and history.
    """
    values = setting.randn(count)
    if setting.distribution == "upstream":
        history = torch.full((HISTORY,), 1e-8, dtype=torch.bfloat16, device=setting.device)
        return values, history
    magnitude = 10 ** (3 * setting.rand(1, dtype=torch.float32) - 3)
    outlier = setting.rand(count, dtype=torch.float32) < 1 / 1024
    values = values * torch.where(outlier, 8 * magnitude, magnitude).to(values.dtype)
    drawn = setting.rand(HISTORY + 2, dtype=torch.float32)
    reach = torch.where(drawn[-1:] < 0.5, 2 ** (1 + 3 * drawn[-2:-1]), 0.9)
    history = values.abs().amax().to(torch.float32) * reach * (0.25 + 0.75 * drawn[:HISTORY])
    if setting.world > 1 and setting.trial % 4 == 3 and setting.rank == setting.trial % setting.world:
        values, history = torch.zeros_like(values), torch.zeros_like(history)
    return values, history.to(torch.bfloat16)
