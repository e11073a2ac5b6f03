#include "copy.cuh"

extern "C" __global__ void stage(const bf16* from, bf16* to, i64 count) { copy(from, to, count); }
