"""The library for kernels: `from sandbox.kit import symm, cpp, cuda`.

symm   one symmetric heap per world: tensors that every rank can read and write in its peers' memory
cpp    C++ for CPU ranks, compiled with gcc
cuda   CUDA C++ for GPUs, compiled with NVRTC

Importing the package loads nothing heavy; each module loads what it needs.
"""
