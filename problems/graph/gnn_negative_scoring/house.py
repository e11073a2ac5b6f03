"""House kernel: ranking; a warp counts the better negatives of a row and stores the resulting place at every rank."""

import functools

import torch
import torch.distributed as dist

from sandbox.kit import cuda, symm

kernel_for = cuda.lazy(r"""
// Stores the place of each row's positive among its negatives in `places` of all ranks; a warp counts a row. pos: [rows]; neg:
// [rows][each]; places: [rows of all ranks], this rank's from `first` on, symmetric. limits: by the bits of a positive, the
// largest score that is not better; 0: the positive itself.
extern "C" __global__ void __launch_bounds__(256) rank_rows(Px px, const TYPE* pos, const TYPE* neg, const float* limits,
        i64* places, i64 rows, i64 each, i64 first) {
    const u32 turn = px_turn(px, blockIdx.x);
    const int lane = threadIdx.x % 32;
    const i64 warps = (i64)gridDim.x * (blockDim.x / 32);
    for (i64 row = (i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; row < rows; row += warps) {
        const float limit = limits ? limits[*(const u16*)(pos + row)] : to_float(pos[row]);
        const TYPE* negatives = neg + row * each;
        float better = 0;  // a float for px_warp_sum, exact up to 2^24
        for (i64 k = lane; k < each; k += 32 * 8) {
            TYPE score[8];
            #pragma unroll  // all loads are in flight before the first comparison
            for (int j = 0; j < 8; ++j)
                if (k + 32 * j < each) score[j] = negatives[k + 32 * j];
            #pragma unroll
            for (int j = 0; j < 8; ++j)
                if (k + 32 * j < each) better += to_float(score[j]) > limit;
        }
        const i64 place = 1 + (i64)px_warp_sum(better);
        if (lane < px.world) px_at(px, (px.rank + lane) % px.world, places)[first + row] = place;
    }
    px_turn_barrier(px, blockIdx.x, turn);  // the places of all ranks have arrived
}
""")
BLOCKS, THREADS = 528, 256


def solution(
    local_pos_scores: torch.Tensor, local_neg_scores: torch.Tensor, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """local_pos_scores [P_r], local_neg_scores [P_r, K] -> [sum of P_r] int64, the same on every rank.

    Row g of the result is the place (1 = best) of row g's positive among its own negatives after a logistic function
    rounded to the scores' dtype; rows by rank, then by position. Among equal scores the positive comes first. K <= 2^24.
    """
    team, limits = symm.team(group), None
    pos, neg = local_pos_scores.contiguous(), local_neg_scores.contiguous()
    # torch's own function, because its last bit decides which scores are equal.
    if pos.is_cuda and pos.itemsize == 2:
        limits = limits_of(pos.dtype, pos.device)
    else:
        pos, neg = torch.sigmoid(pos), torch.sigmoid(neg)
    counts = [count for (count,) in team.gather_numbers(pos.shape[0])]
    first, total = sum(counts[: team.rank]), sum(counts)
    # Two results are enough: a rank stores for call e+2 after the barrier of call e+1, and all ranks read the result of
    # call e before that barrier.
    room = team.room(total, torch.int64, "places")
    if not pos.is_cuda:
        mine = (neg > pos[:, None]).sum(dim=1) + 1
        for peer in team.peers(room):
            peer[first : first + mine.numel()] = mine
        team.barrier()
        return room[:total]
    # The same number of blocks on every rank, although the rows differ.
    blocks = min(max(-(-max(counts) // (THREADS // 32)), 1), BLOCKS)
    launch = kernel_for(pos.dtype).rank_rows[blocks, THREADS]
    launch(team.px, pos, neg, 0 if limits is None else limits, room, pos.shape[0], neg.shape[1], first)
    return room[:total]


@functools.cache
def limits_of(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """By the bits of a score of 16 bits, the largest score whose rounded logistic is not above this one's: [65536] float32."""
    scores = torch.arange(1 << 16, dtype=torch.int32, device=device).to(torch.int16).view(dtype)
    ascending, places = scores.float().sort()
    likely = torch.sigmoid(scores)[places].float().nan_to_num(nan=2.0)  # NaN is the last
    last = torch.searchsorted(likely, likely, right=True) - 1
    return torch.empty_like(ascending).scatter_(0, places, ascending[last])
