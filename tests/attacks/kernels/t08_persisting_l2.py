# expect: PASS
# device: cuda
"""Sets half of the L2 cache aside for itself: the buffers change with every call, so nothing in it is of use."""

import ctypes

import torch

LIMIT_PERSISTING = 6
runtime = ctypes.CDLL(f"libcudart.so.{torch.version.cuda.split('.')[0]}")
runtime.cudaDeviceSetLimit(LIMIT_PERSISTING, ctypes.c_size_t(20 << 20))
