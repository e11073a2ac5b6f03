// Adds to out[row] the sum of b^2 and that of (y - b)^2; at the second launch puts there the largest |y - b| / (|b| + s), where s^2 is the
// mean of b^2. Rows of n numbers of types Y and B, 16 bytes aligned. Squares are summed in B's precision, at least float, by GROUP.

typedef unsigned long long u64;
struct float16 { unsigned short bits; };
struct bfloat16 { unsigned short bits; };
typedef float float32;
typedef double float64;

__device__ float value(bfloat16 x) { return __uint_as_float((unsigned)x.bits << 16); }
__device__ float value(float16 x) { float v; asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(x.bits)); return v; }
__device__ float value(float x) { return x; }
__device__ double value(double x) { return x; }

constexpr int GROUP = 8;
template <typename T> struct alignas(16) Group { T of[GROUP]; };
using Value = decltype(value(B()));

extern "C" __global__ void measure(const Y* y, const B* b, u64 n, u64 y_step, u64 b_step, double* out, u64 second) {
    y += blockIdx.y * y_step, b += blockIdx.y * b_step, out += 3 * blockIdx.y;
    const Value scale = second ? sqrt(out[0] / n) : 0;
    double squares = 0, off = 0;
    Value most = 0;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i * GROUP < n; i += (u64)gridDim.x * blockDim.x) {
        Group<Y> ys = {};
        Group<B> bs = {};
        if (i * GROUP + GROUP <= n) ys = ((const Group<Y>*)y)[i], bs = ((const Group<B>*)b)[i];
        else for (u64 j = i * GROUP; j < n; ++j) ys.of[j % GROUP] = y[j], bs.of[j % GROUP] = b[j];
        Value square = 0, other = 0;
        for (int j = 0; j < GROUP; ++j) {
            const Value of_b = value(bs.of[j]), difference = fabs(value(ys.of[j]) - of_b), room = fabs(of_b) + scale;
            square += of_b * of_b;
            other += difference * difference;
            if (second && difference > most * room) most = difference / room;
        }
        squares += square, off += other;
    }
    double largest = most;
    for (int lane = 16; lane; lane /= 2) {
        squares += __shfl_xor_sync(~0u, squares, lane);
        off += __shfl_xor_sync(~0u, off, lane);
        largest = fmax(largest, __shfl_xor_sync(~0u, largest, lane));
    }
    if (threadIdx.x % 32 == 0 && second) atomicMax((u64*)(out + 2), (u64)__double_as_longlong(largest));
    if (threadIdx.x % 32 == 0 && !second) atomicAdd(out, squares), atomicAdd(out + 1, off);
}
