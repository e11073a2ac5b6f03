"""The library for kernels: `from sandbox.kit import symm, cpp, cuda`.

symm   one symmetric heap per world: tensors that every rank can read and write in its peers' memory
shmem  NVSHMEM: its symmetric memory and device functions, for two or more GPUs
nccl   NCCL's device API: windows, barriers and low-latency words for two or more GPUs
kittens  tiles of ThunderKittens over the peers' memory, with the headers of a checkout
cpp    C++ for CPU ranks, compiled with gcc
cuda   CUDA C++ for GPUs, compiled with NVRTC
recorded  a call's launches, issued again by one C call

Importing the package loads nothing heavy; each module loads what it needs.
"""
