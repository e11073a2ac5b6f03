"""All-to-all by NVSHMEM's device functions: each block puts a piece of chunk d into rank d's output, with a signal.

No barrier: a block is done when the pieces with its number have come from all peers.
"""

import torch

from sandbox.kit import shmem

SOURCE = r"""
// x: [W (receivers)][bytes]; y: [W (senders)][bytes], symmetric; here: [blocks][W] signals, symmetric; piece: bytes of a block.
extern "C" __global__ void __launch_bounds__(512) all_to_all(const char* x, char* y, u64* here, i64 bytes, i64 piece, u64 turn) {
    const int me = nvshmem_my_pe(), world = nvshmem_n_pes();
    const i64 first = blockIdx.x * piece, size = first + piece < bytes ? piece : bytes - first;
    u64* mine = here + blockIdx.x * world;
    for (int step = 1; step < world; ++step) {
        const int peer = (me + step) % world;
        nvshmemx_putmem_signal_block(
            y + me * bytes + first, x + peer * bytes + first, size, mine + me, turn, NVSHMEM_SIGNAL_SET, peer);
    }
    px_copy(y + me * bytes + first, x + me * bytes + first, size, threadIdx.x, blockDim.x);
    if (threadIdx.x < world && threadIdx.x != me) nvshmem_signal_wait_until(mine + threadIdx.x, NVSHMEM_CMP_GE, turn);
}
"""
kernels = shmem.compile(SOURCE)
BLOCKS, LEAST = 128, 8192
"""Most blocks; bytes below which a piece is not made smaller."""


def solution(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.contiguous()
    # Two outputs are enough: a rank that puts for call e+2 has every rank's signals of call e+1, which come behind
    # whatever has read the output of call e.
    result: torch.Tensor = shmem.out(tensor.shape, tensor.dtype, ring=2)
    here = shmem.empty((BLOCKS, shmem.world), torch.int64, tag="here")
    size = tensor.numel() * tensor.element_size() // shmem.world
    blocks = min(max(-(-size // LEAST), 1), BLOCKS)
    piece = -(-size // (blocks * 16)) * 16
    kernels.all_to_all[max(-(-size // max(piece, 1)), 1), 512](tensor, result, here, size, piece, shmem.next_epoch())
    return result
