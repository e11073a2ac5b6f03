"""Attention over short sequences that are split over ranks, in one launch: keys are sent, then read where they arrive.

    from sandbox.kit.blocks.short_attention import attend_short, is_short

    if is_short(query, team.world):
        context = attend_short(query, key, value, scale, causal, team)      # [B, S, H, d] each

Products are float32 and do not use tensor cores, so this is for sequences so short that launches take longer.
"""

import functools
from pathlib import Path
from typing import Any

import torch

from sandbox.kit import cuda
from sandbox.kit.symmetric_memory.team import Team

SOURCE = Path(__file__).with_name("short_attention.cu").read_text()
ENTRY = r"""
extern "C" __global__ void __launch_bounds__(256) attend_to_all(Px px, const TYPE* q, const TYPE* k, const TYPE* v, TYPE* y,
        TYPE* box, int batch, int rows, int heads, int width, i64 pitch, float scale, int causal) {
    attend(px, q, k, v, y, box, batch, rows, heads, width, pitch, scale, causal);
}
"""
TYPES = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "float"}
BLOCKS, THREADS, LARGEST_HEAD = 128, 256, 256
SHORT = 256
"""Most keys of all ranks together."""


@functools.cache
def kernel_for(dtype: torch.dtype) -> Any:
    """The kernel of a dtype, compiled at its first use, which is within a first call."""
    return cuda.compile(SOURCE + ENTRY.replace("TYPE", TYPES[dtype])).attend_to_all


def is_short(query: torch.Tensor, world: int) -> bool:
    """Whether `attend_short` is for queries [B, S, H, d] on each of `world` ranks."""
    return query.is_cuda and world * query.shape[1] <= SHORT and query.shape[3] <= LARGEST_HEAD


def attend_short(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None, causal: bool, team: Team
) -> torch.Tensor:
    """Softmax attention over the rows of all ranks: [B, S, H, d] each, on GPUs, the same shape on all -> [B, S, H, d].

    Rank c has the rows c * S to c * S + S - 1. The three have the same strides. Heads of a row are adjacent, and so are
    batch entries, as in separate tensors and in slices of a packed projection. scale None: d^-1/2. Collective; uses the
    team's signal slots 0 to 127 with its own numbers (px_turn in px.cuh).
    """
    batch, rows, heads, width = query.shape
    blocks = min(max(batch * heads, 1), BLOCKS)
    launch = kernel_for(query.dtype)[blocks, THREADS]  # before the ranks synchronise to allocate buffers
    result = query.new_empty(query.shape)
    box = team.out((team.world, 2, *query.shape), query.dtype, "keys", ring=2) if team.world > 1 else result
    scale = width**-0.5 if scale is None else scale
    given = [tensor.data_ptr() for tensor in (query, key, value, result, box)]
    launch(team.px, *given, batch, rows, heads, width, query.stride(1), scale, int(causal))
    return result
