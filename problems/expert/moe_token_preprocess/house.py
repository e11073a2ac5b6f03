"""House kernel: dispatch metadata; one launch counts, exchanges the counts and writes four results to host memory.

The mask has few ones, so a thread that finds one adds it to its block's counts. The last block sends every owner the
counts of its experts, each in a word with a flag. The host polls a flag in pinned memory until it has the call's
number. Reading the mask limits the speed.
"""

import ctypes
import functools
import time

import torch
import torch.distributed as dist

from sandbox.kit import cuda, symm

kernels = cuda.lazy(r"""
const int MOST_EXPERTS = 4096;
// Counts each expert's rows, and exchanges the counts. mask: [n / experts][experts] of 0 and 1; counts: [experts] and done: a
// counter, both 0 before and after. boxes: [2 (turns)][W (senders)][local] words of 8 bytes, symmetric, flagged with the call's
// epoch. Two turns are enough: a rank that sends in call e+2 has received all words of call e+1, so all ranks have read those of
// call e. out: pinned host memory: rows to each rank [W] and from each rank [W] as i64; then, as float, rows per source and local
// expert [W][local], and their sums over the sources [local]. When all is written, the epoch is stored at `flag`.
extern "C" __global__ void __launch_bounds__(512) count_experts(Px px, const float* mask, u32* counts, u32* done,
        u64* boxes, i64* out, u32* flag, i64 n, int experts, u32 epoch) {
    __shared__ u32 found[MOST_EXPERTS], got[MOST_EXPERTS];
    for (int e = threadIdx.x; e < experts; e += blockDim.x) found[e] = 0;
    __syncthreads();
    const i64 step = 4 * (i64)gridDim.x * blockDim.x;
    for (i64 begin = 4 * ((i64)blockIdx.x * blockDim.x + threadIdx.x); begin < n; begin += 8 * step) {
        uint4 part[8];
        #pragma unroll  // all loads are in flight before the first count
        for (int k = 0; k < 8; ++k) part[k] = px_ld_part(mask, begin + k * step, n);
        #pragma unroll
        for (int k = 0; k < 8; ++k) {
            const u32 word[4] = {part[k].x, part[k].y, part[k].z, part[k].w};
            if (!(word[0] | word[1] | word[2] | word[3])) continue;
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (!word[j]) continue;
                const i64 at = begin + k * step + j;
                const u32 expert = n >> 32 ? at % experts : (u32)at % experts;  // 32 bits are several times as fast
                atomicAdd(&found[expert], 1u);
            }
        }
    }
    __syncthreads();
    for (int e = threadIdx.x; e < experts; e += blockDim.x)
        if (found[e]) atomicAdd(&counts[e], found[e]);
    if (!px_last_block(done, gridDim.x)) return;
    const int local = experts / px.world;
    u64* box = boxes + (i64)(epoch & 1) * experts;
    for (int e = threadIdx.x; e < experts; e += blockDim.x) {
        found[e] = counts[e];
        counts[e] = 0;
        px_st_ll(px_at(px, e / local, box) + px.rank * local + e % local, found[e], epoch);
    }
    float* per_local = (float*)(out + 2 * px.world);
    for (int i = threadIdx.x; i < experts; i += blockDim.x) per_local[i] = got[i] = px_ld_ll(box + i, epoch);
    __syncthreads();
    for (int rank = threadIdx.x; rank < px.world; rank += blockDim.x) {
        i64 sent = 0, received = 0;
        for (int i = rank * local; i < (rank + 1) * local; ++i) sent += found[i], received += got[i];
        out[rank] = sent;
        out[px.world + rank] = received;
    }
    for (int j = threadIdx.x; j < local; j += blockDim.x) {
        u32 sum = 0;
        for (int rank = 0; rank < px.world; ++rank) sum += got[rank * local + j];
        per_local[experts + j] = sum;
    }
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) px_store_release((u64)flag, epoch);
}
""")
BLOCKS, THREADS = 264, 512
MOST_EXPERTS = 4096
"""Most counts that a block holds; more experts take library calls."""
PATIENCE_S = 3.0
"""Seconds for which the host polls the flag; kernels wait two seconds for their peers."""


@functools.cache
def pinned(nbytes: int) -> tuple[torch.Tensor, ctypes.c_uint32]:
    """Returns nbytes of host memory that kernels write, and the flag after them."""
    memory = torch.zeros(nbytes + 8, dtype=torch.uint8, pin_memory=torch.cuda.is_available())
    return memory, ctypes.c_uint32.from_address(memory.data_ptr() + nbytes)


def wait_for(flag: ctypes.c_uint32, value: int) -> None:
    """Waits until a kernel has written the value; raises CUDA's error if the kernel failed."""
    end = time.monotonic() + PATIENCE_S
    while flag.value != value:
        if time.monotonic() > end:
            torch.cuda.synchronize()
            return


def solution(
    expert_mask: torch.Tensor, num_experts: int, group: dist.ProcessGroup | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """expert_mask [E, K, T]: 1 where the k-th choice of token t is expert e, else 0; float32.

    Returns four host tensors: rows this rank sends to each rank [W] int64, rows it receives from each rank [W] int64, rows
    of each source for each of this rank's experts [W, E_l], and their sum over the sources [E_l], both float32.
    """
    team = symm.team(group)
    world, local = team.world, num_experts // team.world
    if not expert_mask.is_cuda or num_experts > MOST_EXPERTS:
        counts = expert_mask.sum(dim=(1, 2))
        everybody = team.out((world, num_experts), counts.dtype, "counts", ring=2)
        for peer in team.peers(everybody):
            peer[team.rank] = counts
        team.barrier()
        table = everybody.cpu().view(world, world, local)  # source, owner, local expert
        per_local = table[:, team.rank].clone()
        received = per_local.sum(dim=1).to(torch.int64)
        return table[team.rank].sum(dim=1).to(torch.int64), received, per_local, per_local.sum(dim=0)
    launches, mask = kernels(), expert_mask.permute(2, 1, 0).contiguous()  # its order in memory, so no copy
    sizes = [8 * world, 8 * world, 4 * num_experts, 4 * local]
    memory, flag = pinned(sum(sizes) + sum(sizes) % 8)
    counts = team.empty(num_experts + 1, torch.int32, "counts")
    boxes = team.empty((2, num_experts), torch.int64, "boxes")
    epoch, numbers = team.next_epoch(), counts.data_ptr()
    blocks = min(max(-(-mask.numel() // (4 * THREADS)), 1), BLOCKS)
    addresses = mask, numbers, numbers + 4 * num_experts, boxes.data_ptr(), memory.data_ptr(), ctypes.addressof(flag)
    flag.value = 0  # calls in another group use the same numbers
    launches.count_experts[blocks, THREADS](team.px, *addresses, mask.numel(), num_experts, epoch)
    wait_for(flag, epoch)
    sent, received, per_local, total = torch.split(memory[: sum(sizes)].clone(), sizes)
    floats = per_local.view(torch.float32).view(world, local), total.view(torch.float32)
    return sent.view(torch.int64), received.view(torch.int64), *floats
