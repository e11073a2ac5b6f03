# problem: alltoall
# device: cpu
"""All-to-all in C++: every rank pushes chunk d straight to its place in rank d's output; one barrier."""

import torch

from sandbox.kit import cpp, symm

lib = cpp.compile(r"""
extern "C" void push(const Px& px, const char* chunks, char* out, i64 bytes, u32 epoch) {
    for (int step = 0; step < px.world; ++step) {
        const int peer = (px.rank + step) % px.world;      // not all ranks to rank 0 first
        memcpy(px_at(px, peer, out) + px.rank * bytes, chunks + peer * bytes, bytes);
    }
    px_barrier(px, 0, epoch);                              // all ranks' chunks have arrived
}
""")


def solution(tensor: torch.Tensor) -> torch.Tensor:
    source = tensor.contiguous()
    result = symm.out(tensor.shape, tensor.dtype)
    bytes_each = source.numel() * source.element_size() // symm.world
    lib.push(symm.px, source.data_ptr(), result.data_ptr(), bytes_each, symm.next_epoch())
    return result
