// For NVRTC: what nccl_device.h reads of the CUDA driver's header.
#pragma once
#define CUDA_VERSION 13000
