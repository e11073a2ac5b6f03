"""Sum all-reduce with ThunderKittens tiles over the peers' memory; any number of elements, in bfloat16."""

import torch

from sandbox.kit import kittens, symm

mod = kittens.compile(r"""
#include "kittens.cuh"
using namespace kittens;
using Rows = gl<bf16, 1, 1, -1, 64>;

extern "C" __global__ void add_all(Px px, const bf16* staged, bf16* y, int rows, u32 epoch) {
    px_barrier(px, blockIdx.x, epoch);
    for (int tile = blockIdx.x; tile < rows / 16; tile += gridDim.x) {
        rt_fl<16, 64> sum, part;
        warp::zero(sum);
        for (int p = 0; p < px.world; ++p) {
            PxView<Rows> peer(px_at(px, p, staged), 1, 1, rows, 64);
            warp::load(part, *peer, {0, 0, tile, 0});
            warp::add(sum, sum, part);
        }
        PxView<Rows> result(y, 1, 1, rows, 64);
        warp::store(*result, sum, {0, 0, tile, 0});
    }
}
""")


def solution(tensor: torch.Tensor) -> torch.Tensor:
    rows = -(-tensor.numel() // 1024) * 16
    staged = symm.out(rows * 64, tensor.dtype, ring=2)
    staged[: tensor.numel()].copy_(tensor.reshape(-1))
    result = torch.empty_like(staged)
    mod.add_all[min(rows // 16, 512), 32](symm.px, staged, result, rows, symm.next_epoch())
    return result[: tensor.numel()].view(tensor.shape)
