"""ParallelKittens for kernels of the ParallelKernelBench harness: tensors that GPUs share, over the kit's symmetric memory.

`ext` is an extension of `compile_cuda_extension` whose source has BIND_TK_PARALLEL_TENSOR. There is no multicast here.
An unsupported request raises CompileError, so that the verdict is COMPILE_ERROR wherever the kernel makes it.
"""

import itertools
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist

from sandbox.kit import kittens, symm
from sandbox.kit.errors import CompileError

_tensors: dict[tuple[Any, ...], Any] = {}
_made = itertools.count()


def get_or_create_parallel_tensor(
    ext: ModuleType, shape: Sequence[int], dtype: torch.dtype, *, multicast: bool = True
) -> Any:
    """The parallel tensor of this shape and dtype, created the first time. All ranks make the same calls in order."""
    key = (ext.__name__, tuple(shape), dtype)
    if multicast or key not in _tensors:
        _tensors[key] = create_parallel_tensor(ext, shape, dtype, multicast=multicast)
    return _tensors[key]


def create_parallel_tensor(ext: ModuleType, shape: Sequence[int], dtype: torch.dtype, *, multicast: bool = True) -> Any:
    """A new parallel tensor, zero at first. `.data_` is this rank's part. Collective; its memory is kept until the world ends.

    Raises:
        CompileError: multicast is requested, this world has one rank or CPU ranks, or `ext` has another
            TKParallelTensor.
    """
    _refuse(dist.get_world_size(), multicast)
    if "nccl" not in dist.get_backend_config():
        raise CompileError("ParallelKittens kernels need GPU ranks, and this run is on CPU ranks")
    made: Any = getattr(ext, "TKParallelTensor", None)
    if not getattr(made, "kit_memory", False):
        raise CompileError(f"{ext.__name__} has no TKParallelTensor of the kit: build it with compile_cuda_extension")
    return made(list(shape), dtype, local_rank=symm.rank, local_world_size=symm.world, multicast=False)


def get_or_create_barrier(ext: ModuleType, *, num_devices: int = 8) -> Any:
    """A parallel tensor of zeros, int32 [num_devices, num_devices], for signals between GPUs; never multicast."""
    if num_devices != dist.get_world_size():
        raise CompileError(
            f"the kernel is for {num_devices} GPUs (num_devices), this world has {dist.get_world_size()}"
        )
    return get_or_create_parallel_tensor(ext, (num_devices, num_devices), torch.int32, multicast=False)


def memory(
    shape: Sequence[int], dtype: torch.dtype, local_rank: int, local_world_size: int, multicast: bool
) -> tuple[torch.Tensor, list[int]]:
    """Memory of a new TKParallelTensor, for its C++ code: this rank's part, and the addresses of all parts."""
    _refuse(local_world_size, multicast)
    part = symm.empty(tuple(shape), dtype, f"parallel tensor {next(_made)}")
    return part, symm.ptrs(part)


def adopted(
    tensor: torch.Tensor, dtype: None, local_rank: int, local_world_size: int, multicast: bool
) -> tuple[torch.Tensor, list[int]]:
    """The same for existing memory. Raises SymmetricMemoryError unless it is symmetric."""
    _refuse(local_world_size, multicast)
    return tensor, symm.ptrs(tensor)


def _refuse(world: int, multicast: bool) -> None:
    here = dist.get_world_size()
    if here == 1:
        raise CompileError("ParallelKittens kernels need peers, and this world has one rank")
    if world != here:
        raise CompileError(f"the kernel is for {world} GPUs (local_world_size), this world has {here}")
    if multicast:
        raise CompileError(
            "multicast=True needs NVLS, and the kit's symmetric memory has none; pass multicast=False, and use pgl<GL, N, false>"
        )


kittens.checkout()  # without headers no such kernel compiles, and this raises an error with the reason
