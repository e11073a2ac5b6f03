"""House kernel: overlap suppression; one launch sends masks and sign bits to all, one counts bits and blanks masks.

All ranks have all counts, so every pixel is stored at its final place at once, converted to float32. Two launches and
their barrier limit the speed at the published size. With many objects the link does, which carries float32 so that
nothing has to be unpacked.
"""

from typing import Any

import torch
import torch.distributed as dist

from sandbox.kit import cuda, symm

kernel_for = cuda.lazy(r"""
// Stores this rank's masks, scores and the masks' sign bits at all ranks, masks and scores as float. x: [objects][pixels];
// scores: [objects]. Symmetric: masks, [all][pixels] and then scores [all]; bits, [all][4 * chunks]. This rank's objects have the
// numbers from `before` on. A warp works on a chunk of 128 pixels, 4 per lane, so that it stores 512 consecutive bytes at a peer.
// Bit l of word e of a chunk belongs to pixel 4 l + e. Bits may have any order that is the same in all masks.
extern "C" __global__ void __launch_bounds__(512) share_masks(Px px, const TYPE* x, const TYPE* scores, float* masks, u32* bits,
        i64 objects, i64 before, i64 all, i64 pixels) {
    const u32 turn = px_turn(px, blockIdx.x);
    const int lane = threadIdx.x % 32;
    const i64 chunks = (pixels + 127) / 128, step = (i64)gridDim.x * blockDim.x / 32;
    for (i64 first = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / 32; first < objects * chunks; first += 4 * step) {
        float value[4][4];
        #pragma unroll  // all loads are in flight before the first store
        for (int k = 0; k < 4; ++k) {
            const i64 i = first + k * step, object = i / chunks, at = i % chunks * 128 + 4 * lane;
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                value[k][e] = 0;
                if (i < objects * chunks && at + e < pixels) value[k][e] = to_float(x[object * pixels + at + e]);
            }
        }
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
            const i64 i = first + k * step, object = before + i / chunks, chunk = i % chunks;
            if (i >= objects * chunks) break;  // all lanes of the warp
            for (int away = 0; away < px.world; ++away) {
                float* there = px_at(px, (px.rank + away) % px.world, masks) + object * pixels;
                px_st_part(there, chunk * 128 + 4 * lane, pixels, px_pack<float>(value[k]));
            }
            u32 word = 0;
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                const u32 positive = __ballot_sync(0xffffffffu, value[k][e] > 0);
                if (lane % 4 == e) word = positive;
            }
            if (lane < 4 * px.world) px_at(px, lane / 4, bits)[(object * chunks + chunk) * 4 + lane % 4] = word;
        }
    }
    for (i64 i = threadIdx.x; blockIdx.x == 0 && i < objects * px.world; i += blockDim.x)
        px_at(px, (int)(i / objects), masks)[all * pixels + before + i % objects] = to_float(scores[i % objects]);
    px_turn_barrier(px, blockIdx.x, turn);  // all ranks' masks and bits have arrived
}
// Finds the objects that overlap another object and must give way to it, and sets their masks to -10. The blocks of a column of
// the grid decide about one object: each warp compares it with another, and the last block sets its mask. bits: as in
// share_masks; last, suppressed: [all]; masks: [all][pixels]; votes, done: [all], 0 before and after.
extern "C" __global__ void __launch_bounds__(256) suppress(const u32* bits, const i64* last, float* masks, bool* suppressed,
        u32* votes, u32* done, i64 all, i64 pixels, float threshold, int reverse) {
    const int lane = threadIdx.x % 32;
    const i64 words = (pixels + 127) / 128 * 4, i = blockIdx.x, j = (blockIdx.y * (i64)blockDim.x + threadIdx.x) / 32;
    if (j < all && i != j && last[j] > -1 && (reverse ? last[i] < last[j] : last[i] > last[j])) {
        const uint4 *mine = (const uint4*)(bits + i * words), *other = (const uint4*)(bits + j * words);
        int shared = 0, together = 0;
        #pragma unroll 4
        for (i64 w = lane; w < words / 4; w += 32) {
            const uint4 a = mine[w], b = other[w];
            shared += __popc(a.x & b.x) + __popc(a.y & b.y) + __popc(a.z & b.z) + __popc(a.w & b.w);
            together += __popc(a.x | b.x) + __popc(a.y | b.y) + __popc(a.z | b.z) + __popc(a.w | b.w);
        }
        #pragma unroll
        for (int away = 16; away > 0; away /= 2) {
            shared += __shfl_xor_sync(0xffffffffu, shared, away);
            together += __shfl_xor_sync(0xffffffffu, together, away);
        }
        if (lane == 0 && (float)shared / (float)max(together, 1) >= threshold) atomicAdd(votes + i, 1u);
    }
    if (!px_last_block(done + i, gridDim.y)) return;
    const bool yields = ((const volatile u32*)votes)[i] != 0;
    __syncthreads();
    if (threadIdx.x == 0) suppressed[i] = yields, votes[i] = 0;
    const float blank[4] = {-10, -10, -10, -10};
    for (i64 at = 4 * (i64)threadIdx.x; yields && at < pixels; at += 4 * (i64)blockDim.x)
        px_st_part(masks + i * pixels, at, pixels, px_pack<float>(blank));
}
""")
BLOCKS, THREADS = 128, 512


symm.reserve(2 << 30)  # two results of the largest sizes


def solution(
    low_res_masks_local: torch.Tensor,
    obj_scores_local: torch.Tensor,
    num_obj_per_gpu: list[int],
    last_occluded: torch.Tensor,
    iou_threshold: float = 0.7,
    reverse: bool = False,
    group: dist.ProcessGroup | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """low_res_masks_local [n_r, H, V] logits, obj_scores_local [n_r], last_occluded [N] int64 -> masks, scores, suppressed.

    n_r = num_obj_per_gpu[rank], N their sum. Returns masks [N, H, V] and scores [N] in float32, objects in rank order,
    and suppressed [N] bool, the same on every rank. An object is suppressed if its positive area overlaps another's by
    iou_threshold and its last_occluded is larger than the other's (smaller with reverse), which must be above -1. Its
    mask is then -10.

    Raises:
        ValueError: a local count differs from num_obj_per_gpu.
    """
    team = symm.team(group)
    objects, (height, width) = num_obj_per_gpu[team.rank], low_res_masks_local.shape[1:]
    if low_res_masks_local.shape[0] != objects or obj_scores_local.shape[0] != objects:
        raise ValueError(
            f"num_obj_per_gpu announces {objects} objects on this rank, "
            f"not {low_res_masks_local.shape[0]} masks and {obj_scores_local.shape[0]} scores"
        )
    before, total, pixels = sum(num_obj_per_gpu[: team.rank]), sum(num_obj_per_gpu), height * width
    # Two results are enough: a rank stores for call e+2 after the barrier of call e+1, and all ranks read the result of
    # call e before that barrier.
    room = team.room(total * (pixels + 1), torch.float32, "masks")
    masks = room[: total * pixels].view(total, height, width)
    scores = room[total * pixels : total * (pixels + 1)]
    if not room.is_cuda:
        share_by_copies(room, low_res_masks_local, obj_scores_local, before, total, team)
        return masks, scores, suppress_by_product(masks, last_occluded, iou_threshold, reverse)
    suppressed = torch.empty(total, dtype=torch.bool, device=room.device)
    chunks = -(-pixels // 128)
    bits = team.room(total * chunks * 4, torch.int32, "bits")
    kernels = kernel_for(low_res_masks_local.dtype)
    blocks = min(max(-(-max(num_obj_per_gpu) * chunks * 32 // THREADS), 1), BLOCKS)  # the same on all ranks
    given = low_res_masks_local.contiguous(), obj_scores_local.contiguous(), room, bits.data_ptr()
    kernels.share_masks[blocks, THREADS](team.px, *given, objects, before, total, pixels)
    if total:
        threads = min(THREADS, 256)
        decide = kernels.suppress[(total, -(-32 * total // threads)), threads]
        counters = team.empty((2, 1 << (total - 1).bit_length()), torch.int32, "counters")  # zero after every launch
        listed = bits.data_ptr(), last_occluded.contiguous(), room, suppressed, *counters
        decide(*listed, total, pixels, iou_threshold, reverse)
    return masks, scores, suppressed


def share_by_copies(
    room: torch.Tensor, masks: torch.Tensor, scores: torch.Tensor, before: int, total: int, team: Any
) -> None:
    """Copies this CPU rank's masks and scores to their places at every rank, as float32."""
    objects, pixels = masks.shape[0], masks.shape[1] * masks.shape[2]
    for peer in team.peers(room):
        peer[before * pixels : (before + objects) * pixels].view(masks.shape).copy_(masks)
        peer[total * pixels + before : total * pixels + before + objects].copy_(scores)
    team.barrier()


def suppress_by_product(masks: torch.Tensor, last: torch.Tensor, threshold: float, reverse: bool) -> torch.Tensor:
    """Blanks the suppressed ones of masks [N, H, V] on CPU ranks; returns which, [N] bool. Exact below 2^24 pixels."""
    positive = (masks > 0).flatten(1).float()
    shared = positive @ positive.t()
    area = shared.diagonal()
    overlaps = shared / (area[:, None] + area - shared).clamp_(min=1) >= threshold
    overlaps.fill_diagonal_(False)
    gives_way = last[:, None] < last if reverse else last[:, None] > last
    suppressed = (overlaps & gives_way & (last > -1)).any(dim=1)
    masks[suppressed] = -10.0
    return suppressed
