"""All-reduce in one launch for small tensors: low-latency words carry data and flag together, so no barrier
is needed.

Each rank pushes its tensor into a box of its own at every peer and adds up what arrives in its boxes.
"""

import torch

from sandbox.kit import cuda, symm

SOURCE = r"""
// boxes: [2 (turns)][W (senders)][words][4 u32]: two data words with a flag each.
extern "C" __global__ void __launch_bounds__(256) all_reduce(
        Px px, const uint2* x, uint4* boxes, uint2* y, int words, u32 epoch) {
    uint4* turn = boxes + (u64)(epoch & 1) * px.world * words;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x) {
        const uint2 mine = x[i];
        for (int step = 1; step < px.world; ++step) {
            const int peer = (px.rank + step) % px.world;
            px_st_ll16(px_at(px, peer, turn) + (u64)px.rank * words + i, mine, epoch);
        }
        float sum[4] = {0, 0, 0, 0};
        // In rank order, so that the sum is bitwise the same on every rank.
        for (int source = 0; source < px.world; ++source) {
            const uint2 got = source == px.rank ? mine : px_ld_ll16(turn + (u64)source * words + i, epoch);
            sum[0] += bf16x2_low(got.x);
            sum[1] += bf16x2_high(got.x);
            sum[2] += bf16x2_low(got.y);
            sum[3] += bf16x2_high(got.y);
        }
        y[i] = make_uint2(bf16x2_from(sum[0], sum[1]), bf16x2_from(sum[2], sum[3]));
    }
}
"""
kernels = cuda.compile(SOURCE)


def solution(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype != torch.bfloat16 or tensor.numel() % 4:
        raise NotImplementedError("this example takes bfloat16 tensors whose size divides by 4")
    words = tensor.numel() // 4
    # Two turns are enough: a rank that sends call e+2 has every rank's words of call e+1, so every rank has
    # left call e.
    boxes = symm.empty((2, symm.world, words, 4), torch.int32, tag="boxes")
    result = torch.empty_like(tensor)
    blocks = min(-(-words // 256), 64)
    kernels.all_reduce[blocks, 256](symm.px, tensor, boxes, result, words, symm.next_epoch())
    return result
