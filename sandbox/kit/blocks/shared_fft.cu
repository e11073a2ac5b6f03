// Transforms of M complex numbers, M a power of two, in a block's shared memory; roots: exp(-i pi j / M), j < M. Element i lies at
// tile[fft_at(i)], which spares bank conflicts. The frequencies come out in the order of the passes' digits and go in so.
static __device__ int fft_at(int i) { return i + (i >> 4); }
static __device__ float2 fft_times(float2 a, float2 b) { return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }
static __device__ float2 fft_plus(float2 a, float2 b) { return make_float2(a.x + b.x, a.y + b.y); }
static __device__ float2 fft_minus(float2 a, float2 b) { return make_float2(a.x - b.x, a.y - b.y); }
static __device__ float2 fft_conj(float2 a) { return make_float2(a.x, -a.y); }
// The transform of R = 2, 4 or 8 numbers; forward: with exp(-2 pi i / R).
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
            const int eighth = i * 8 / R;  // of a turn
            const float2 root = eighth == 0 ? make_float2(1, 0) : eighth == 1 ? make_float2(half, FORWARD ? -half : half)
                    : eighth == 2 ? make_float2(0, FORWARD ? -1 : 1) : make_float2(-half, FORWARD ? -half : half);
            const float2 turned = eighth == 0 ? odd[i] : eighth == 2 ? (FORWARD ? make_float2(odd[i].y, -odd[i].x)
                    : make_float2(-odd[i].y, odd[i].x)) : fft_times(odd[i], root);
            a[i] = fft_plus(even[i], turned);
            a[i + R / 2] = fft_minus(even[i], turned);
        }
    }
}
// One pass over sub-transforms of n = R s numbers: forward transforms R numbers s apart, then turns them; backward the reverse.
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
// The whole block calls these after __syncthreads; they end with one. Backward gives M times the inverse.
template <int M, int n> static __device__ void fft_forward(float2* tile, const float2* roots) {
    fft_pass<M, n, true>(tile, roots);
    if constexpr (n > 8) fft_forward<M, n / 8>(tile, roots);
}
template <int M, int n> static __device__ void fft_backward(float2* tile, const float2* roots) {
    if constexpr (n > 8) fft_backward<M, n / 8>(tile, roots);
    fft_pass<M, n, false>(tile, roots);
}
// Of 2M real numbers, two to an element: a, b are the transform's frequencies k and M - k, root is exp(-i pi k / M). Gives the
// frequencies k and M - k of the real numbers, and back. k = 0 stands for the frequencies 0 and M.
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
