// CUDA's type of 16-bit floats, for the CPU.
#pragma once
struct __nv_bfloat16 { unsigned short bits; };
static inline __nv_bfloat16 __float2bfloat16(float value) { return {emu_bf16(value)}; }
