// For NVRTC: the part of the CUDA driver's header that nccl_device.h uses.
#pragma once
#define CUDA_VERSION 13000
