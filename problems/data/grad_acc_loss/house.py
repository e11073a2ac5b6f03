"""House kernel: token-weighted loss; one warp sends its term to the peers in words with a flag and adds up W terms."""

import torch
import torch.distributed as dist

from sandbox.kit import cuda, symm

kernel_for = cuda.lazy(r"""
// One warp calls this. out: [3], {total / *global, total, gradient}; total: the sum over the ranks of *loss * *local. grad_sum: 0
// for none. boxes: [2 (turns)][W (senders)] words of 16 bytes, symmetric. Two turns are enough: a rank that sends launch t+2 has
// received all words of launch t+1, so all ranks have read those of launch t.
extern "C" __global__ void weigh(Px px, const TYPE* loss, const i64* local, const i64* global, const TYPE* grad_mean,
        const TYPE* grad_sum, uint4* boxes, TYPE* out) {
    const u32 turn = px_turn(px, 0);
    uint4* box = boxes + (turn & 1) * px.world;
    const int lane = threadIdx.x;
    const double tokens = (double)*local, all = (double)*global;
    // A rank without tokens adds 0, even if its loss is NaN or infinite.
    const float term = *local == 0 ? 0.0f : (float)(to_float(*loss) * tokens);
    if (lane < px.world && lane != px.rank)
        px_st_ll16(px_at(px, lane, box) + px.rank, make_uint2(__float_as_uint(term), 0), turn);
    if (lane == 0) {
        const double sum_part = grad_sum ? to_float(*grad_sum) * tokens : 0.0;
        out[2] = from_float<TYPE>((float)(to_float(*grad_mean) * tokens / all + sum_part));
    }
    float got = lane == px.rank ? term : 0;
    if (lane < px.world && lane != px.rank) got = __uint_as_float(px_ld_ll16(box + lane, turn).x);
    double total = 0;
    for (int rank = 0; rank < px.world; ++rank) total += __shfl_sync(0xffffffffu, got, rank);  // the same bits on all ranks
    if (lane == 0) {
        out[0] = from_float<TYPE>((float)(total / all));
        out[1] = from_float<TYPE>((float)total);
    }
    px_reach(px, 0, turn);
}
""")


def solution(
    loss: torch.Tensor,
    local_valid_tokens: torch.Tensor,
    global_valid_tokens: torch.Tensor,
    grad_normalized_loss: torch.Tensor,
    grad_loss_sum: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """All arguments are 0-dim: losses and gradients bfloat16 or float32, counts int64.

    Returns (normalized_loss, loss_sum, grad_loss), 0-dim of the run dtype: Σ_r loss_r·t_r / T, that sum itself, and the
    gradient with respect to this rank's loss. A rank without tokens counts as zero even when its loss is NaN or infinite.
    """
    if loss.is_cuda:
        out = loss.new_empty(3)
        boxes = symm.empty((2, symm.world, 4), torch.int32, "boxes")
        given = 0 if grad_loss_sum is None else grad_loss_sum
        kernel = kernel_for(loss.dtype).weigh[1, 32]
        kernel(symm.px, loss, local_valid_tokens, global_valid_tokens, grad_normalized_loss, given, boxes, out)
        return out[0], out[1], out[2]
    wide = torch.where(local_valid_tokens == 0, 0.0, loss.double() * local_valid_tokens).float()
    dist.all_reduce(wide)
    gradient = grad_normalized_loss.double() * local_valid_tokens / global_valid_tokens
    if grad_loss_sum is not None:
        gradient = gradient + grad_loss_sum.double() * local_valid_tokens
    return (wide / global_valid_tokens).to(loss.dtype), wide.to(loss.dtype), gradient.to(loss.dtype)
