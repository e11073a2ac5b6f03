"""All-reduce in C++, one-shot: stage, barrier, add. The smallest whole kernel of its kind; start here."""

import torch

from sandbox.kit import cpp, symm

lib = cpp.compile(r"""
template <class T>
static void all_reduce(const Px& px, const T* x, T* staged, T* y, long n, u32 epoch) {
    memcpy(staged, x, n * sizeof(T));
    px_barrier(px, 0, epoch);
    const T* in[PX_MAX_WORLD];
    for (int p = 0; p < px.world; ++p) in[p] = px_at(px, p, staged);
    for (long i = 0; i < n; ++i) {
        float sum = 0;
        for (int p = 0; p < px.world; ++p) sum += to_float(in[p][i]);
        y[i] = from_float<T>(sum);
    }
}
extern "C" void all_reduce_bf16(const Px& px, const bf16* x, bf16* staged, bf16* y, long n, u32 epoch) {
    all_reduce(px, x, staged, y, n, epoch);
}
extern "C" void all_reduce_f32(const Px& px, const float* x, float* staged, float* y, long n, u32 epoch) {
    all_reduce(px, x, staged, y, n, epoch);
}
""")

ALL_REDUCE = {torch.bfloat16: lib.all_reduce_bf16, torch.float32: lib.all_reduce_f32}


def solution(tensor: torch.Tensor) -> torch.Tensor:
    # A ring of two staging buffers makes the one barrier of this kernel enough (see sandbox.kit.symm).
    staged = symm.out(tensor.shape, tensor.dtype, tag="staged", ring=2)
    result = torch.empty_like(tensor)
    ALL_REDUCE[tensor.dtype](symm.px, tensor, staged, result, tensor.numel(), symm.next_epoch())
    return result
