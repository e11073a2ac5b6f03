"""House kernel: vocabulary-parallel cross-entropy; logits are read once; ranks exchange three numbers per token."""

import torch
import torch.distributed as dist

from sandbox.kit import cuda, symm

kernel_for = cuda.lazy(r"""
// Computes loss: [rows] from logits: [rows][width], columns rank * width and on of the vocabulary. WARPS warps (1, or all 8 of a
// block) read a row, and find its largest logit, the sum of exponentials relative to it, and the target's logit if this rank has
// it. They store these on all ranks, in words with flags. boxes: [2 (turns)][W (senders)][rows][2] words of 16 bytes, symmetric,
// {largest, sum} and {target's logit, whether the sender has it}. A block waits only when it has sent all its words. Two turns
// are enough: a rank that sends launch t+2 has received all words of launch t+1, so all ranks have read those of launch t.
extern "C" __global__ void __launch_bounds__(256) lose(Px px, const TYPE* logits, const i64* target, uint4* boxes, TYPE* loss,
        i64 rows, i64 width) {
    const u32 turn = px_turn(px, blockIdx.x);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, at_a_time = 8 / WARPS;
    uint4* box = boxes + (i64)(turn & 1) * px.world * rows * 2;
    const i64 first = (i64)blockIdx.x * at_a_time, step = (i64)gridDim.x * at_a_time;
    for (i64 base = first; base < rows; base += step) {
        const i64 row = base + (WARPS == 1 ? warp : 0);
        const TYPE* from = logits + row * width;
        PxMass mass = px_mass(from, row < rows ? width : 0, threadIdx.x % (WARPS * 32), WARPS * 32);
        mass = WARPS > 1 ? px_block_mass(mass) : px_warp_mass(mass);
        if (row < rows && (WARPS == 1 || warp == 0) && lane < px.world) {
            const i64 column = target[row] - px.rank * width;
            const bool here = column >= 0 && column < width;
            const float picked = here ? to_float(from[column]) : 0;
            uint4* there = px_at(px, lane, box) + (px.rank * rows + row) * 2;
            px_st_ll16(there, make_uint2(__float_as_uint(mass.peak), __float_as_uint(mass.sum)), turn);
            px_st_ll16(there + 1, make_uint2(__float_as_uint(picked), here), turn);
        }
    }
    for (i64 j = threadIdx.x;; j += blockDim.x) {  // the block's rows, one thread each
        const i64 base = first + j / at_a_time * step, row = base + j % at_a_time;
        if (base >= rows) break;
        if (row >= rows) continue;
        PxMass mass = px_no_mass();
        float picked = 0;
        bool found = false;
        for (int source = 0; source < px.world; ++source) {
            const uint4* from = box + (source * rows + row) * 2;
            const uint2 sums = px_ld_ll16(from, turn), pick = px_ld_ll16(from + 1, turn);
            mass = px_joined(mass, {__uint_as_float(sums.x), __uint_as_float(sums.y)});
            if (pick.y) picked = __uint_as_float(pick.x);
            found |= pick.y != 0;
        }
        loss[row] = from_float<TYPE>(logf(mass.sum) - (found ? picked - mass.peak : 0));
    }
    px_reach(px, blockIdx.x, turn);
}
""")
BLOCKS, WARPS = 528, 8
LONG = 4096
"""Columns from which a whole block works on a row."""


def solution(
    vocab_parallel_logits: torch.Tensor, target: torch.Tensor, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """vocab_parallel_logits [B, S, Vp] (columns r·Vp .. of the vocabulary), target [B, S] int64 -> loss [B, S].

    In float32, rounded once. A target outside every shard counts as a logit equal to the maximum. The logits are not
    changed.
    """
    width, rows = vocab_parallel_logits.shape[-1], target.numel()
    if not vocab_parallel_logits.is_cuda:
        return by_library(vocab_parallel_logits, target, group)
    loss = torch.empty(target.shape, dtype=vocab_parallel_logits.dtype, device=target.device)
    if rows == 0:
        return loss
    team = symm.team(group)
    warps = WARPS if width >= LONG else 1
    blocks = min(-(-rows * warps // WARPS), BLOCKS)
    # One tensor per launch shape: a box's words must always belong to the same block and its launch count.
    boxes = team.empty((2, team.world, rows, 2, 4), torch.int32, f"boxes of {blocks} blocks, {warps} warps a row")
    kernel = kernel_for(vocab_parallel_logits.dtype, WARPS=warps).lose[blocks, 32 * WARPS]
    logits = vocab_parallel_logits.contiguous()
    kernel(team.px, logits, target.contiguous(), boxes.data_ptr(), loss, rows, width)
    return loss


def by_library(logits: torch.Tensor, target: torch.Tensor, group: dist.ProcessGroup | None) -> torch.Tensor:
    """Computes `solution` on CPU ranks: one all-gather of three numbers per token, not three dependent all-reduces."""
    width = logits.shape[-1]
    wide = logits.float()
    peak = wide.amax(dim=-1)
    total = (wide - peak[..., None]).exp_().sum(dim=-1)
    column = target - dist.get_rank(group) * width
    here = (column >= 0) & (column < width)
    picked = wide.gather(-1, column.masked_fill(~here, 0)[..., None])[..., 0]
    # -inf for a target on another rank, so that the largest number of the ranks is the target's logit.
    mine = torch.stack((peak, total, picked.masked_fill(~here, -torch.inf)))
    gathered = mine.new_empty(dist.get_world_size(group), *mine.shape)
    dist.all_gather_into_tensor(gathered, mine, group=group)
    peaks, totals, picks = gathered.unbind(1)
    largest, found = peaks.amax(dim=0), picks.amax(dim=0)
    total = (totals * (peaks - largest).exp()).sum(dim=0)
    shifted = torch.where(found == -torch.inf, 0.0, found - largest)
    return (total.log() - shifted).to(logits.dtype)
