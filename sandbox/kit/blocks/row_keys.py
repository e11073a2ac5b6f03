"""For bitwise searches: integers in the order of floats, and a loop that deals a row's values to a block's threads.

from sandbox.kit import cuda
from sandbox.kit.blocks import row_keys

kernels = cuda.compile(row_keys.SOURCE + SOURCE)   # there: look(row, columns, [&](float value, i64 column) { ... });
"""

SOURCE = r"""
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
            float value[8];
            px_unpack<T>(part[p], value);
            #pragma unroll
            for (int e = 0; e < each; ++e)
                if (i + p * stride + e < columns) see(value[e], i + p * stride + e);
        }
    }
}
"""
