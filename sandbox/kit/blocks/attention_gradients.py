# mypy: ignore-errors
"""Gradients of softmax attention from its log-sum-exps, in two Triton launches on tensor cores.

    from sandbox.kit.blocks.attention_gradients import write_gradients   # imports Triton, so only where there is a GPU

    write_gradients([dout, q, k, v, out], lse, scale, causal, [dq, dk, dv])

Weights and gradients of scores never leave the multiprocessor. They are float32, and tensor cores would round them to 16 bits. So
each is multiplied as the sum of two 16-bit numbers, which is exact to 16 bits of mantissa. So there are 8 products
instead of 5.
"""

import torch
import triton
import triton.language as tl

ROWS = 64
"""For long sequences: queries or keys of a program, and how many of the other kind it takes at a time."""


@triton.jit
def dot_split(a, b, total):
    """total + a b for a float32 and b of 16 bits: a is split into two numbers of b's dtype."""
    high = a.to(b.dtype)
    low = (a - high.to(tl.float32)).to(b.dtype)
    return tl.dot(low, b, tl.dot(high, b, total))


@triton.jit
def tile(start, rows, width, stride, COUNT: tl.constexpr, WIDTH: tl.constexpr):
    """Returns the offsets of COUNT rows of a head, and the mask of those that are inside."""
    row, column = start + tl.arange(0, COUNT), tl.arange(0, WIDTH)
    inside = (row[:, None] < rows) & (column[None, :] < width)
    return row[:, None] * stride + column[None, :], inside


@triton.jit(do_not_specialize=["causal"])
def gradients_of_queries(
    grad, q, k, v, out, lse, delta, dq,
    scale, causal, rows, heads, width, batch_stride, row_stride, head_stride, dq_batch, dq_row, dq_head,
    ROWS: tl.constexpr, STEP: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Writes dq of ROWS queries of a head, and their delta = <grad, out> for the next launch.

    lse, delta: [B, H, rows] float32.
    """
    batch, head = (tl.program_id(1) // heads).to(tl.int64), tl.program_id(1) % heads
    start = (tl.num_programs(0) - 1 - tl.program_id(0)) * ROWS  # the longest first
    base = batch * batch_stride + head * head_stride
    place, inside = tile(start, rows, width, row_stride, ROWS, WIDTH)
    query = tl.load(q + base + place, mask=inside, other=0.0)
    upstream = tl.load(grad + base + place, mask=inside, other=0.0)
    result = tl.load(out + base + place, mask=inside, other=0.0)
    row = start + tl.arange(0, ROWS)
    stats = tl.program_id(1).to(tl.int64) * rows + row
    own_delta = tl.sum(upstream.to(tl.float32) * result.to(tl.float32), 1)
    tl.store(delta + stats, own_delta, mask=row < rows)
    own_lse = tl.load(lse + stats, mask=row < rows, other=float("inf")) * 1.4426950408889634
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    last = rows
    if causal != 0:
        last = tl.minimum(start + ROWS, rows)
    for first in range(0, last, STEP):
        there, known = tile(first, rows, width, row_stride, STEP, WIDTH)
        key = tl.load(k + base + there, mask=known, other=0.0)
        value = tl.load(v + base + there, mask=known, other=0.0)
        column = first + tl.arange(0, STEP)
        seen = (column[None, :] < rows) & ((causal == 0) | (column[None, :] <= row[:, None]))
        weights = tl.exp2(tl.dot(query, tl.trans(key)) * (scale * 1.4426950408889634) - own_lse[:, None])
        weights = tl.where(seen, weights, 0.0)
        by_score = weights * (tl.dot(upstream, tl.trans(value)) - own_delta[:, None])
        total = dot_split(by_score, key, total)
    target, wanted = tile(start, rows, width, dq_row, ROWS, WIDTH)
    home = batch * dq_batch + head * dq_head
    tl.store(dq + home + target, (total * scale).to(dq.dtype.element_ty), mask=wanted)


@triton.jit(do_not_specialize=["causal"])
def gradients_of_keys(
    grad, q, k, v, lse, delta, dk, dv,
    scale, causal, rows, heads, width, batch_stride, row_stride, head_stride, dk_batch, dk_row, dk_head,
    KEYS: tl.constexpr, STEP: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Writes dk and dv of KEYS keys of a head. Scores are transposed, so that no left side of a product has to be."""
    batch, head = (tl.program_id(1) // heads).to(tl.int64), tl.program_id(1) % heads
    start = tl.program_id(0) * KEYS
    base = batch * batch_stride + head * head_stride
    place, inside = tile(start, rows, width, row_stride, KEYS, WIDTH)
    key = tl.load(k + base + place, mask=inside, other=0.0)
    value = tl.load(v + base + place, mask=inside, other=0.0)
    column = start + tl.arange(0, KEYS)
    stats = tl.program_id(1).to(tl.int64) * rows
    of_key = tl.zeros((KEYS, WIDTH), tl.float32)
    of_value = tl.zeros((KEYS, WIDTH), tl.float32)
    begin = 0
    if causal != 0:
        begin = start // STEP * STEP
    for first in range(begin, rows, STEP):
        there, known = tile(first, rows, width, row_stride, STEP, WIDTH)
        query = tl.load(q + base + there, mask=known, other=0.0)
        upstream = tl.load(grad + base + there, mask=known, other=0.0)
        row = first + tl.arange(0, STEP)
        row_lse = tl.load(lse + stats + row, mask=row < rows, other=float("inf")) * 1.4426950408889634
        row_delta = tl.load(delta + stats + row, mask=row < rows, other=0.0)
        seen = (row[None, :] < rows) & ((causal == 0) | (column[:, None] <= row[None, :]))
        weights = tl.exp2(tl.dot(key, tl.trans(query)) * (scale * 1.4426950408889634) - row_lse[None, :])
        weights = tl.where(seen, weights, 0.0)
        of_value = dot_split(weights, upstream, of_value)
        by_score = weights * (tl.dot(value, tl.trans(upstream)) - row_delta[None, :])
        of_key = dot_split(by_score, query, of_key)
    target, wanted = tile(start, rows, width, dk_row, KEYS, WIDTH)
    home = batch * dk_batch + head * dk_head
    tl.store(dk + home + target, (of_key * scale).to(dk.dtype.element_ty), mask=wanted)
    tl.store(dv + home + target, of_value.to(dv.dtype.element_ty), mask=wanted)


def write_gradients(
    given: list[torch.Tensor], lse: torch.Tensor, scale: float, causal: bool, gradients: list[torch.Tensor]
) -> None:
    """Writes (dq, dk, dv) [B, S, H, d] from given = (dout, q, k, v, out) [B, S, H, d] of 16 bits, and lse [B, H, S] float32.

    The five given have the same strides, and so have the gradients; elements of a head are adjacent. d: up to 256. Sums
    are float32 and rounded once.
    """
    grad, q, k, v, out = given
    dq, dk, dv = gradients
    batch, rows, heads, width = q.shape
    lse, delta = lse.contiguous(), torch.empty_like(lse, memory_format=torch.contiguous_format)
    wide = max(triton.next_power_of_2(width), 16)
    short = max(triton.next_power_of_2(rows), 16)
    own, step = min(ROWS, short), min(ROWS if wide <= 128 else ROWS // 2, short)
    grid = (triton.cdiv(rows, own), batch * heads)
    numbers = (scale, int(causal), rows, heads, width, *q.stride()[:3], *dq.stride()[:3])
    shape = {"STEP": step, "WIDTH": wide, "num_warps": 8 if own * wide > 1 << 13 else 4, "num_stages": 2}
    gradients_of_queries[grid](grad, q, k, v, out, lse, delta, dq, *numbers, ROWS=own, **shape)
    gradients_of_keys[grid](grad, q, k, v, lse, delta, dk, dv, *numbers, KEYS=own, **shape)
