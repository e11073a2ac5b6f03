"""Attention over a sequence that is split over ranks. It exchanges heads instead of passing keys round a ring.

    from sandbox.kit.blocks.attention import attend, attend_together

    context = attend_together(qkv, scale, causal, group)     # qkv [B, S, 3, H, d] -> [B, S, H, d]

Each rank gets the whole sequence for its share of the heads. So one fused kernel does all products, no partial results
are merged, and under a causal mask all ranks have the same work. With a ring, the last rank computes W - 1/2 blocks and
the first a half.
"""

import contextlib
from contextlib import AbstractContextManager

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from sandbox.kit import cuda, symm
from sandbox.kit.blocks import cuda_text
from sandbox.kit.blocks.reshard import kernel_for as reshard_kernels
from sandbox.kit.blocks.reshard import reshard
from sandbox.kit.symmetric_memory.team import Team

kernel_for = cuda.lazy(cuda_text("short_attention"))
BLOCKS, THREADS, LARGEST_HEAD = 128, 256, 256
SHORT = 256
"""Most keys of all ranks together."""


def is_short(rows: int, width: int, world: int) -> bool:
    """Whether `attend_short` is for heads of `width` elements and so many rows on each of `world` ranks, on GPUs."""
    return world * rows <= SHORT and width <= LARGEST_HEAD


def is_recordable(rows: int, width: int, dtype: torch.dtype, group: dist.ProcessGroup | None) -> bool:
    """Whether `attend_together` can be recorded if it is given `out`. Scores in float32 would stay in memory."""
    world = dist.get_world_size(group)
    return world == 1 if is_short(rows, width, world) else dtype.itemsize == 2


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
    launch = kernel_for(query.dtype).attend_to_all[blocks, THREADS]  # before the ranks synchronise to allocate buffers
    result = query.new_empty(query.shape)
    box = team.out((team.world, 2, *query.shape), query.dtype, "keys", ring=2) if team.world > 1 else result
    scale = width**-0.5 if scale is None else scale
    given = [tensor.data_ptr() for tensor in (query, key, value, result, box)]
    launch(team.px, *given, batch, rows, heads, width, query.stride(1), scale, int(causal))
    return result


FUSED = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Kernels for 16-bit tensors, the fastest on Hopper first. One that does not support the shapes is skipped."""
LONG = 1024
"""From this number of keys on, the choice of a kernel is worth its host time."""


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None, causal: bool
) -> torch.Tensor:
    """Softmax attention: query [B, Sq, H, d], key and value [B, Sk, Hk, d] where Hk divides H -> [B, Sq, H, d], contiguous.

    Query head h reads key head h * Hk // H. causal requires Sq = Sk. Scores and sums are float32; scale None: d^-1/2.
    The elements of a head must be adjacent; all other strides are free.
    """
    q, k, v = (tensor.transpose(1, 2) for tensor in (query, key, value))
    shared = query.shape[2] != key.shape[2]
    with _kernels(query, key):
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=shared)
    return attended.transpose(1, 2).contiguous()


def _kernels(query: torch.Tensor, key: torch.Tensor) -> AbstractContextManager[None]:
    """Chooses kernels on a GPU: plain products for float32, because fused ones may multiply with less precision."""
    if not query.is_cuda:
        return contextlib.nullcontext()
    if query.dtype == torch.float32:
        return sdpa_kernel(SDPBackend.MATH)
    if key.shape[1] < LONG:
        return contextlib.nullcontext()
    return sdpa_kernel(FUSED, set_priority=True)


def attend_together(
    qkv: torch.Tensor,
    scale: float | None,
    causal: bool,
    group: dist.ProcessGroup | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention over the rows of all ranks of a group: qkv [B, S, 3, H, d], contiguous, the same shape on all -> [B, S, H, d].

    Rank c has the rows c * S to c * S + S - 1. Any number of heads: if it is no multiple of the ranks, the last ranks
    attend to zeros. Short sequences take one launch, and no heads are exchanged. Collective. out: symmetric, for the result if
    heads are exchanged, [B, S, W * ceil(H / W), d]; by default of a ring: a later call writes to it again, but not the next.
    """
    world, heads = dist.get_world_size(group), qkv.shape[3]
    query, key, value = qkv.unbind(2)
    if query.is_cuda and is_short(query.shape[1], query.shape[3], world):
        return attend_short(query, key, value, scale, causal, symm.team(group))
    if world == 1:
        return attend(query, key, value, scale, causal)
    team = symm.team(group)
    batch, rows, _, width = query.shape
    if qkv.is_cuda:
        reshard_kernels(cuda.unit_of(qkv))  # before the ranks exchange: see `cuda.lazy`
    # One is enough: before a rank writes to it again, all ranks have read it and exchanged the results.
    whole = team.empty((batch, world * rows, 3, -(-heads // world), width), qkv.dtype, "heads")
    query, key, value = reshard(qkv, 3, 1, team, whole).unbind(2)  # [B, W * S, ceil(H / W), d] each
    attended = reshard(attend(query, key, value, scale, causal), 1, 2, team, out)
    return attended if attended.shape[2] == heads else attended[:, :, :heads].contiguous()
