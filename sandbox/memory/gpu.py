"""Sealed shared memory on a GPU: cuMem allocations that are passed as descriptors and mapped with chosen rights.

The trusted rank allocates. The contender's rank on the same GPU maps inputs read-only (a write is an illegal address) and
outputs read-write. Unlike cudaIpc handles, this needs neither a shared PID namespace nor ptrace rights. It calls the CUDA driver
through ctypes, so that it needs only torch and the driver.
"""

import ctypes
import struct
from types import SimpleNamespace
from typing import Any

import torch

_POSIX_FD = 1
_PINNED = 1
_ON_DEVICE = 1
READ, READ_WRITE = 1, 3
GRANULE = 2 << 20
_ALLOCATION_PROP = struct.Struct("=4i16x")
"""CUmemAllocationProp: type, handle type, location (type, id); then a pointer and flags, all zero."""
_ACCESS_DESC = struct.Struct("=3i")
"""CUmemAccessDesc: location (type, id), rights."""


class DriverError(RuntimeError):
    """A CUDA driver call failed. The message names the call and the error."""


_library: Any = None


def driver() -> Any:
    """The library libcuda."""
    global _library
    if _library is None:
        _library = ctypes.CDLL("libcuda.so.1")
    return _library


def call(name: str, *arguments: Any) -> None:
    """Calls a driver function by name. Raises DriverError if it fails."""
    status = getattr(driver(), name)(*arguments)
    if status:
        text = ctypes.c_char_p()
        driver().cuGetErrorName(status, ctypes.byref(text))
        raise DriverError(f"{name}: {(text.value or b'unknown error').decode()}")


def launch(kernel: ctypes.c_void_p, blocks: tuple[int, int], threads: int, *words: int) -> None:
    """Launches a kernel of the current context on its default stream. words: the arguments, of 8 bytes each."""
    values = [ctypes.c_ulonglong(word) for word in words]
    table = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
    call("cuLaunchKernel", kernel, *blocks, 1, threads, 1, 1, 0, None, table, None)


def _map(handle: ctypes.c_ulonglong, size: int, rights: int) -> int:
    pointer = ctypes.c_ulonglong()
    none, bytes_ = ctypes.c_size_t(0), ctypes.c_size_t(size)
    call("cuMemAddressReserve", ctypes.byref(pointer), bytes_, none, ctypes.c_ulonglong(0), 0)
    call("cuMemMap", pointer, bytes_, none, handle, ctypes.c_ulonglong(0))
    access = _ACCESS_DESC.pack(_ON_DEVICE, torch.cuda.current_device(), rights)
    call("cuMemSetAccess", pointer, bytes_, access, ctypes.c_size_t(1))
    # The mapping keeps the allocation alive.
    call("cuMemRelease", handle)
    return pointer.value


def _tensor(pointer: int, size: int) -> torch.Tensor:
    interface = {"shape": (size,), "typestr": "|u1", "data": (pointer, False), "strides": None, "version": 3}
    memory = SimpleNamespace(__cuda_array_interface__=interface)
    return torch.as_tensor(memory, device=f"cuda:{torch.cuda.current_device()}")


def rounded(size: int) -> int:
    """size, rounded up to the granularity of the driver."""
    return -(-size // GRANULE) * GRANULE


def allocate(size: int) -> tuple[int, torch.Tensor]:
    """Allocates memory; returns its descriptor and a read-write view: flat uint8 of at least `size` bytes."""
    size = rounded(size)
    prop = _ALLOCATION_PROP.pack(_PINNED, _POSIX_FD, _ON_DEVICE, torch.cuda.current_device())
    handle = ctypes.c_ulonglong()
    call("cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(size), prop, ctypes.c_ulonglong(0))
    fd = ctypes.c_int()
    call("cuMemExportToShareableHandle", ctypes.byref(fd), handle, _POSIX_FD, ctypes.c_ulonglong(0))
    return fd.value, _tensor(_map(handle, size, READ_WRITE), size)


def attach(fd: int, size: int, rights: int) -> torch.Tensor:
    """Maps memory that another process allocated on this GPU with `allocate(size)`: flat uint8."""
    return _tensor(attach_address(fd, size, rights), rounded(size))


def attach_address(fd: int, size: int, rights: int) -> int:
    """Maps memory of another process's `allocate(size)`, on this GPU or on one that it can access; returns the address."""
    handle = ctypes.c_ulonglong()
    call("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(fd), _POSIX_FD)
    return _map(handle, rounded(size), rights)


def allocation(address: int) -> int:
    """The driver's handle of the cuMem allocation at an address, the same at each of its addresses; 0 for other memory."""
    handle = ctypes.c_ulonglong()
    if driver().cuMemRetainAllocationHandle(ctypes.byref(handle), ctypes.c_void_p(address)):
        return 0
    call("cuMemRelease", handle)
    return handle.value


def release(memory: torch.Tensor) -> None:
    """Unmaps memory of `allocate` or `attach`. It is freed when no process maps it."""
    pointer, size = ctypes.c_ulonglong(memory.data_ptr()), ctypes.c_size_t(memory.numel())
    torch.cuda.synchronize()
    call("cuMemUnmap", pointer, size)
    call("cuMemAddressFree", pointer, size)
