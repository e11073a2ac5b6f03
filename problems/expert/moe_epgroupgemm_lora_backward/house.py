"""House kernel: all-reduce of three gradients in one launch, which reads them by address, without a joined copy.

Small gradients go to all ranks at once, in words with a flag. Of large ones each rank adds up one share for all.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist

from sandbox.kit import cuda, symm

kernel_for = cuda.lazy(r"""
// Returns word i of three arrays one after another; zeros beyond their end. given: address and length of each array. A word has
// 16 bytes; the last word of an array is padded with zeros.
template <class T> static __device__ uint4 word_of(const PxNumbers& given, i64 i) {
    const int each = 16 / sizeof(T);
    #pragma unroll
    for (int t = 0; t < 3; ++t) {
        const i64 n = given.at[2 * t + 1], words = (n + each - 1) / each;
        if (i < words) return px_ld_part((const T*)given.at[2 * t], i * each, n);
        i -= words;
    }
    return make_uint4(0, 0, 0, 0);
}
// For small arrays: every rank sends its words to all others, data and flag in one store, and adds up all ranks' words in rank
// order. y: [words]. boxes: [2 (turns)][W (senders)][words][2 (halves)] words of 16 bytes, symmetric. Two turns are enough: a
// rank that sends launch t+2 has received all words of launch t+1, so all ranks have read those of launch t.
extern "C" __global__ void __launch_bounds__(512) sum_one_shot(Px px, PxNumbers given, uint4* boxes, uint4* y, i64 words) {
    const u32 turn = px_turn(px, blockIdx.x);
    uint4* box = boxes + (i64)(turn & 1) * px.world * words * 2;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += (i64)gridDim.x * blockDim.x) {
        const uint4 own = word_of<TYPE>(given, i);
        for (int away = 1; away < px.world; ++away) {
            uint4* there = px_at(px, (px.rank + away) % px.world, box) + (px.rank * words + i) * 2;
            px_st_ll16(there, make_uint2(own.x, own.y), turn);
            px_st_ll16(there + 1, make_uint2(own.z, own.w), turn);
        }
        PxSum<TYPE> total;
        for (int source = 0; source < px.world; ++source) {
            if (source == px.rank) {
                total.add(own);
                continue;
            }
            const uint4* from = box + (source * words + i) * 2;
            const uint2 low = px_ld_ll16(from, turn), high = px_ld_ll16(from + 1, turn);
            total.add(make_uint4(low.x, low.y, high.x, high.y));
        }
        px_st16(y + i, total.rounded());
    }
    px_reach(px, blockIdx.x, turn);
}
// For large arrays: every rank sends share p of its words to rank p, which adds them up and stores the sums at all ranks. staged:
// [W (senders)][share] and y: [W][share], both symmetric. The same block of every rank works on the same words of a share. One
// `staged` is enough: when a launch has ended, all ranks have read it.
extern "C" __global__ void __launch_bounds__(512) sum_two_shot(Px px, PxNumbers given, uint4* staged, uint4* y, i64 share) {
    const u32 turn = px_turn(px, blockIdx.x), second = px_turn(px, gridDim.x + blockIdx.x);
    const i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x, step = (i64)gridDim.x * blockDim.x;
    for (i64 i = first; i < share; i += step) {
        uint4 part[PX_MAX_WORLD];
        #pragma unroll  // all loads are in flight before the first store
        for (int away = 1; away < PX_MAX_WORLD; ++away)
            if (away < px.world) part[away] = word_of<TYPE>(given, (px.rank + away) % px.world * share + i);
        #pragma unroll
        for (int away = 1; away < PX_MAX_WORLD; ++away)
            if (away < px.world)
                px_st16(px_at(px, (px.rank + away) % px.world, staged) + px.rank * share + i, part[away]);
    }
    px_turn_barrier(px, blockIdx.x, turn);  // all ranks' words of this rank's share have arrived
    for (i64 i = first; i < share; i += step) {
        uint4 part[PX_MAX_WORLD];
        #pragma unroll
        for (int source = 0; source < PX_MAX_WORLD; ++source)
            if (source < px.world)
                part[source] =
                    source == px.rank ? word_of<TYPE>(given, px.rank * share + i) : px_ld16(staged + source * share + i);
        PxSum<TYPE> total;
        #pragma unroll
        for (int source = 0; source < PX_MAX_WORLD; ++source)
            if (source < px.world) total.add(part[source]);
        const uint4 rounded = total.rounded();
        for (int away = 0; away < px.world; ++away)
            px_st16(px_at(px, (px.rank + away) % px.world, y) + px.rank * share + i, rounded);
    }
    px_turn_barrier(px, gridDim.x + blockIdx.x, second);  // all ranks' sums have arrived, and all ranks have read `staged`
}
""")
BLOCKS, THREADS = 64, 512
SMALL = 1 << 19
"""Bytes that a rank sends, up to which it sends everything to all ranks, in one step instead of two."""

symm.reserve(2 << 30)  # staging and two results of the largest sizes


def summed(gradients: Sequence[torch.Tensor], team: symm.Team) -> torch.Tensor:
    """Returns the gradients' sums in 16-byte words, one array after the other, each padded to whole words."""
    dtype, each = gradients[0].dtype, 16 // gradients[0].element_size()
    given = [number for g in gradients for number in (g.data_ptr(), g.numel())]
    words = sum(-(-gradient.numel() // each) for gradient in gradients)
    kernel = kernel_for(dtype)
    if (team.world - 1) * words * 16 <= SMALL:
        result = torch.empty(words * each, dtype=dtype, device=gradients[0].device)
        boxes = team.empty((2, team.world, words, 2, 4), torch.int32, "boxes")
        blocks = min(max(-(-words // THREADS), 1), BLOCKS)
        kernel.sum_one_shot[blocks, THREADS](team.px, given, boxes.data_ptr(), result.data_ptr(), words)
        return result
    # Two results are enough: a rank stores for call e+2 after the barrier of call e+1, and all ranks read the result of
    # call e before that barrier.
    share = -(-words // team.world)
    staged = team.empty((team.world, share, each), dtype, "staged")
    result = team.out(team.world * share * each, dtype, "sums")
    kernel.sum_two_shot[BLOCKS, THREADS](team.px, given, staged.data_ptr(), result.data_ptr(), share)
    return result


def solution(
    grad_fc1_1_lora_A: torch.Tensor,
    grad_fc1_2_lora_A: torch.Tensor,
    grad_fc2_lora_B: torch.Tensor,
    group: dist.ProcessGroup | None = None,
) -> tuple[torch.Tensor, ...]:
    """Partial gradients [R, N], [R, N] and [N, R] -> new tensors: each summed over the ranks, in float32 and rounded once."""
    gradients = [g.contiguous() for g in (grad_fc1_1_lora_A, grad_fc1_2_lora_A, grad_fc2_lora_B)]
    team = symm.team(group)
    sizes = [gradient.numel() for gradient in gradients]
    if gradients[0].is_cuda:
        each = 16 // gradients[0].element_size()
        room = [-(-size // each) * each for size in sizes]
        joined = summed(gradients, team)[: sum(room)].split(room)
    else:
        # Peers read one another's memory; with two alternating buffers one is free when the next call writes.
        mine = team.out(sum(sizes), gradients[0].dtype, "gradients", ring=2)
        for place, gradient in zip(mine.split(sizes), gradients, strict=True):
            place.copy_(gradient.flatten())
        team.barrier()
        total = torch.zeros_like(mine, dtype=torch.float32)
        for peer in team.peers(mine):  # in the order of the ranks: the same bits everywhere
            total += peer
        joined = total.to(mine.dtype).split(sizes)
    return tuple(
        part[:size].view(gradient.shape) for part, size, gradient in zip(joined, sizes, gradients, strict=True)
    )
