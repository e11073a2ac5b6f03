"""Top-k, top-p or both of rows of vocabulary-parallel logits in one launch: each rank sends its k largest to all.

    from sandbox.kit.blocks.candidates import cut_rows, serves

    if serves(logits, team.world, top_k):
        least, log_sum, found, log_probability, dropped = cut_rows(logits, target, team, top_k, share=0.1)

A thread block processes a row. At least k logits, and few others, reach the k-th largest of its threads' maxima. A
second pass over the row, which is still cached, collects them. With top-p alone, each pass over the row finds two bits
of the cut, from three sums that the ranks exchange. `truncation` calls this module on GPUs.
"""

import torch

from sandbox.kit import cuda
from sandbox.kit.blocks import cuda_text
from sandbox.kit.symmetric_memory.team import Team

KEYS = r"""
// key_of returns a key above 0, and keys sort like the values; those of bf16 have 16 bits. -0 counts as 0. value_of: the inverse.
template <class T> struct Key { static const int bits = 32; };
template <> struct Key<bf16> { static const int bits = 16; };
template <class T> static __device__ u32 key_of(float value) {
    const u32 word = __float_as_uint(value + 0.0f);
    return (word & 0x80000000u ? ~word : word | 0x80000000u) >> (32 - Key<T>::bits);
}
template <class T> static __device__ float value_of(u32 key) {
    u32 word = key;
    if (Key<T>::bits == 16) word = key << 16 | (key & 0x8000u ? 0 : 0xffffu);
    return __uint_as_float(word & 0x80000000u ? word & 0x7fffffffu : ~word);
}
// All threads of a block call this for a row of `columns` values: calls `see(value, column)` for this thread's values.
template <class T, class See> static __device__ void look(const T* from, i64 columns, See see) {
    const int each = 16 / sizeof(T);
    const i64 stride = blockDim.x * each;
    for (i64 i = (i64)threadIdx.x * each; i < columns; i += 4 * stride) {
        uint4 part[4];
        #pragma unroll  // all loads are in flight before the first comparison
        for (int p = 0; p < 4; ++p) part[p] = px_ld_part(from, i + p * stride, columns);
        #pragma unroll
        for (int p = 0; p < 4; ++p) {
            const i64 at = i + p * stride;
            float value[8];
            px_unpack<T>(part[p], value);
            if (at + each <= columns) {  // one 64-bit comparison per word, not per value
                #pragma unroll
                for (int e = 0; e < each; ++e) see(value[e], at + e);
            } else {
                for (int e = 0; at + e < columns; ++e) see(value[e], at + e);
            }
        }
    }
}
"""
"""For bitwise searches: integers in the order of floats, and a loop that deals a row's values to a block's threads.

After it: look(row, columns, [&](float value, i64 column) { ... });
"""
kernel_for = cuda.lazy(KEYS + cuda_text("candidates"))
BLOCKS, THREADS = 264, 512
LONG = 4096
"""From this number of columns on, a row gets a block with all threads."""
LIST = 1024
"""Most candidates of all ranks that a block can hold."""


def serves(logits: torch.Tensor, world: int, top_k: int) -> bool:
    """Whether `cut_rows` supports it: on GPUs, with room for the candidates of all ranks. The same on all ranks.

    top_k: 0 for none.
    """
    candidates = world * min(top_k, logits.shape[1])
    return logits.is_cuda and logits.dtype in cuda.FLOATS and logits.numel() > 0 and candidates + world <= LIST


def cut_rows(
    logits: torch.Tensor, target: torch.Tensor, team: Team, top_k: int, share: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Cuts logits [n, V/W] with target [n] int64, both of the same rows on all ranks, if `serves` allows it.

    top_k: how many logits are kept, plus those that equal the last of them; 0: all. share: then the largest part of
    their softmax that is dropped, from the smallest logit on. Returns (least, log_sum, found, log_probability), [n]
    float32, and dropped, [n] int64: the fields of `sandbox.kit.blocks.truncation.Cut`. Collective; uses the team's
    slots 0..263 with their own numbers.
    """
    # Compiled before the ranks synchronise, because a rank that waits in a kernel traps after 2 s.
    kernels = kernel_for(logits.dtype)
    (rows, columns), device = logits.shape, logits.device
    offered = min(top_k, columns)
    blocks, threads = min(rows, BLOCKS), THREADS if columns >= LONG else min(THREADS, 128)
    by_share = top_k == 0 and share > 0
    words = 5 + 3 * (8 if logits.dtype == torch.bfloat16 else 16) if by_share else 2 + offered // 2
    # A box belongs to one block and uses the block's count of launches.
    boxes = team.empty((2, team.world, rows, words, 4), torch.int32, f"candidates of {blocks} blocks")
    out = torch.empty((4, rows), dtype=torch.float32, device=device)
    dropped = torch.empty(rows, dtype=torch.int64, device=device)
    given = logits.contiguous(), target.contiguous(), boxes.data_ptr(), out, dropped, rows, columns
    if by_share:
        kernels.cut_rows_by_share[blocks, threads](team.px, *given, share)
    else:
        kernels.cut_rows[blocks, threads](team.px, *given, top_k, share)
    return out[0], out[1], out[2], out[3], dropped
