"""Sealed shared memory on a GPU: cuMem allocations that travel as file descriptors and are mapped with the rights we choose.

The trusted rank allocates; the contender's rank on the same GPU imports inputs read-only (a write is an illegal address) and
outputs read-write. Unlike cudaIpc handles this needs neither a shared PID namespace nor ptrace rights. CUDA driver API through
ctypes, so that nothing beyond torch and the driver is needed.
"""

import ctypes
import struct
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
    """A CUDA driver call failed; the message names the call and the driver's own word for the error."""


_library: Any = None


def driver() -> Any:
    """libcuda."""
    global _library
    if _library is None:
        _library = ctypes.CDLL("libcuda.so.1")
    return _library


def call(name: str, *arguments: Any) -> None:
    """A driver function by name. Raises DriverError unless it returns success."""
    status = getattr(driver(), name)(*arguments)
    if status:
        text = ctypes.c_char_p()
        driver().cuGetErrorName(status, ctypes.byref(text))
        raise DriverError(f"{name}: {(text.value or b'unknown error').decode()}")


def _current_device() -> int:
    return torch.cuda.current_device()


class _Span:
    """Device memory as torch's array interface wants it."""

    def __init__(self, pointer: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (pointer, False),
            "strides": None,
            "version": 3,
        }


def _map(handle: ctypes.c_ulonglong, size: int, rights: int) -> int:
    pointer = ctypes.c_ulonglong()
    call(
        "cuMemAddressReserve",
        ctypes.byref(pointer),
        ctypes.c_size_t(size),
        ctypes.c_size_t(0),
        ctypes.c_ulonglong(0),
        0,
    )
    call("cuMemMap", pointer, ctypes.c_size_t(size), ctypes.c_size_t(0), handle, ctypes.c_ulonglong(0))
    access = _ACCESS_DESC.pack(_ON_DEVICE, _current_device(), rights)
    call("cuMemSetAccess", pointer, ctypes.c_size_t(size), access, ctypes.c_size_t(1))
    # The mapping keeps the allocation alive; it goes with the process.
    call("cuMemRelease", handle)
    return pointer.value


def _tensor(pointer: int, size: int) -> torch.Tensor:
    return torch.as_tensor(_Span(pointer, size), device=f"cuda:{_current_device()}")


def rounded(size: int) -> int:
    """size rounded up to what the driver allocates."""
    return -(-size // GRANULE) * GRANULE


def allocate(size: int) -> tuple[int, torch.Tensor]:
    """A file descriptor to hand out, and this process's read-write view: flat uint8 of at least `size` bytes."""
    size = rounded(size)
    prop = _ALLOCATION_PROP.pack(_PINNED, _POSIX_FD, _ON_DEVICE, _current_device())
    handle = ctypes.c_ulonglong()
    call("cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(size), prop, ctypes.c_ulonglong(0))
    fd = ctypes.c_int()
    call("cuMemExportToShareableHandle", ctypes.byref(fd), handle, _POSIX_FD, ctypes.c_ulonglong(0))
    return fd.value, _tensor(_map(handle, size, READ_WRITE), size)


def attach(fd: int, size: int, rights: int) -> torch.Tensor:
    """Maps memory that another process allocated on this GPU with `allocate(size)`: flat uint8."""
    return _tensor(attach_address(fd, size, rights), rounded(size))


def attach_address(fd: int, size: int, rights: int) -> int:
    """Maps memory that another process allocated with `allocate(size)`, on this GPU or on one that this one reaches."""
    handle = ctypes.c_ulonglong()
    call("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(fd), _POSIX_FD)
    return _map(handle, rounded(size), rights)


def release(memory: torch.Tensor) -> None:
    """Unmaps what `allocate` or `attach` gave; the memory is freed when no process maps it any more."""
    pointer, size = ctypes.c_ulonglong(memory.data_ptr()), ctypes.c_size_t(memory.numel())
    torch.cuda.synchronize()
    call("cuMemUnmap", pointer, size)
    call("cuMemAddressFree", pointer, size)
