// For NVRTC: px.cuh has defined the integer types already.
#pragma once
typedef unsigned long uintptr_t;
typedef long ptrdiff_t;
