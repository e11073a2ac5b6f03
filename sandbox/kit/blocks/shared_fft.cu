// Fourier transforms of M complex numbers, M a power of two, in a block's shared memory. roots[j] = exp(-i pi j / M), j < M.
// Element i is at tile[fft_at(i)], which avoids bank conflicts. fft_forward leaves the frequencies in the digit order of its
// passes, and fft_backward expects them so; `frequencies` in shared_fft.py returns this order.
static __device__ int fft_at(int i) { return i + (i >> 4); }
static __device__ float2 fft_times(float2 a, float2 b) { return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }
static __device__ float2 fft_plus(float2 a, float2 b) { return make_float2(a.x + b.x, a.y + b.y); }
static __device__ float2 fft_minus(float2 a, float2 b) { return make_float2(a.x - b.x, a.y - b.y); }
static __device__ float2 fft_conj(float2 a) { return make_float2(a.x, -a.y); }
// Transforms R = 2, 4 or 8 numbers in place: forward with exp(-2 pi i / R), backward with its conjugate.
template <int R, bool FORWARD> static __device__ void fft_small(float2* a) {
    if constexpr (R == 2) {
        const float2 sum = fft_plus(a[0], a[1]);
        a[1] = fft_minus(a[0], a[1]);
        a[0] = sum;
    } else {
        float2 even[R / 2], odd[R / 2];
        #pragma unroll
        for (int i = 0; i < R / 2; ++i) even[i] = a[2 * i], odd[i] = a[2 * i + 1];
        fft_small<R / 2, FORWARD>(even);
        fft_small<R / 2, FORWARD>(odd);
        const float half = 0.70710678118654752f;
        #pragma unroll
        for (int i = 0; i < R / 2; ++i) {
            const int eighth = i * 8 / R;  // the angle, in eighths of a turn
            const float2 root = eighth == 0 ? make_float2(1, 0) : eighth == 1 ? make_float2(half, FORWARD ? -half : half)
                    : eighth == 2 ? make_float2(0, FORWARD ? -1 : 1) : make_float2(-half, FORWARD ? -half : half);
            const float2 turned = eighth == 0 ? odd[i] : eighth == 2 ? (FORWARD ? make_float2(odd[i].y, -odd[i].x)
                    : make_float2(-odd[i].y, odd[i].x)) : fft_times(odd[i], root);
            a[i] = fft_plus(even[i], turned);
            a[i + R / 2] = fft_minus(even[i], turned);
        }
    }
}
// One pass over sub-transforms of n = R s numbers. Forward: transforms R numbers that are s apart, then multiplies them by powers
// of a root. Backward: divides by these powers, then transforms.
template <int M, int n, bool FORWARD> static __device__ void fft_pass(float2* tile, const float2* roots) {
    constexpr int R = n >= 8 ? 8 : n, s = n / R;
    for (int j = threadIdx.x; j < M / R; j += blockDim.x) {
        const int r = j % s, base = j / s * n + r;
        float2 a[R], turn[R];
        if constexpr (s > 1) {
            turn[1] = roots[r * (2 * M / n)];
            if (!FORWARD) turn[1] = fft_conj(turn[1]);
            #pragma unroll
            for (int k = 2; k < R; ++k) turn[k] = fft_times(turn[k / 2], turn[k - k / 2]);
        }
        #pragma unroll
        for (int k = 0; k < R; ++k) {
            a[k] = tile[fft_at(base + k * s)];
            if (s > 1 && !FORWARD && k > 0) a[k] = fft_times(a[k], turn[k]);
        }
        fft_small<R, FORWARD>(a);
        #pragma unroll
        for (int k = 0; k < R; ++k) {
            if (s > 1 && FORWARD && k > 0) a[k] = fft_times(a[k], turn[k]);
            tile[fft_at(base + k * s)] = a[k];
        }
    }
    __syncthreads();
}
// The whole block calls these after __syncthreads; they end with one. fft_backward computes M times the inverse transform.
template <int M, int n> static __device__ void fft_forward(float2* tile, const float2* roots) {
    fft_pass<M, n, true>(tile, roots);
    if constexpr (n > 8) fft_forward<M, n / 8>(tile, roots);
}
template <int M, int n> static __device__ void fft_backward(float2* tile, const float2* roots) {
    if constexpr (n > 8) fft_backward<M, n / 8>(tile, roots);
    fft_pass<M, n, false>(tile, roots);
}
// For 2M real numbers that are stored two to an element: fft_split converts a and b, the complex transform's frequencies k and
// M - k, to the frequencies k and M - k of the real numbers. fft_join does the reverse. root is exp(-i pi k / M). For k = 0, a
// and b stand for the real numbers' frequencies 0 and M.
static __device__ void fft_split(float2& a, float2& b, float2 root) {
    const float2 even = make_float2((a.x + b.x) / 2, (a.y - b.y) / 2);
    const float2 odd = fft_times(make_float2((a.y + b.y) / 2, (b.x - a.x) / 2), root);
    a = fft_plus(even, odd);
    b = fft_conj(fft_minus(even, odd));
}
static __device__ void fft_join(float2& a, float2& b, float2 root) {
    const float2 even = make_float2((a.x + b.x) / 2, (a.y - b.y) / 2);
    const float2 odd = fft_times(make_float2((a.x - b.x) / 2, (a.y + b.y) / 2), fft_conj(root));
    a = make_float2(even.x - odd.y, even.y + odd.x);
    b = make_float2(even.x + odd.y, odd.x - even.y);
}
// The whole block calls this: loads a row of n <= 2M real numbers, two to an element, with zeros behind them. Ends with
// __syncthreads.
template <class T, int M> static __device__ void fft_load(float2* tile, const T* row, i64 n) {
    const int each = 16 / sizeof(T);
    for (int first = threadIdx.x; first < 2 * M / each; first += 4 * blockDim.x) {
        uint4 part[4];
        #pragma unroll  // all loads are in flight before the first store
        for (int k = 0; k < 4; ++k) part[k] = px_ld_part(row, (first + k * (i64)blockDim.x) * each, n);
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
            const int i = first + k * blockDim.x;
            if (i >= 2 * M / each) break;
            float value[each];
            px_unpack<T>(part[k], value);
            #pragma unroll
            for (int e = 0; e < each / 2; ++e)
                tile[fft_at(i * (each / 2) + e)] = make_float2(value[2 * e], value[2 * e + 1]);
        }
    }
    __syncthreads();
}
// The whole block calls this after fft_forward of 2M real numbers, two to an element. With FILTER: writes their spectrum, divided
// by M, to `spectrum` [M / 2 + 1], frequencies k and M - k in an entry. Otherwise: multiplies the tile by `spectrum`, to whose
// filter it adds a tap of `more` at position 0; fft_backward then gives the convolution. turns, pairs: as in shared_fft.Tables.
template <bool FILTER, int M> static __device__ void fft_multiply(
        float2* tile, float4* spectrum, const float2* turns, const u32* pairs, float more) {
    for (int first = threadIdx.x; first < M / 2 + 1; first += 4 * blockDim.x) {
        u32 pair[4];
        float4 factor[4];
        float2 turn[4];
        #pragma unroll  // all loads are in flight before the first store
        for (int k = 0; k < 4; ++k) {
            const int i = min(first + k * (int)blockDim.x, M / 2);
            pair[k] = pairs[i];
            turn[k] = turns[i];
            if (!FILTER) factor[k] = spectrum[i];
        }
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
            const int i = first + k * blockDim.x, p = fft_at(pair[k] & 0xffff), q = fft_at(pair[k] >> 16);
            if (i >= M / 2 + 1) break;
            float2 low = tile[p], high = tile[q];
            fft_split(low, high, turn[k]);
            if (FILTER) {
                spectrum[i] = float4{low.x / M, low.y / M, high.x / M, high.y / M};
            } else {
                low = fft_times(low, make_float2(factor[k].x + more / M, factor[k].y));
                high = fft_times(high, make_float2(factor[k].z + more / M, factor[k].w));
                fft_join(low, high, turn[k]);
                tile[q] = high;
                tile[p] = low;
            }
        }
    }
    __syncthreads();
}
