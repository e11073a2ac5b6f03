"""Measures of many numbers beside others on a GPU, in two passes over memory; torch's operations make about ten times as many."""

import ctypes
import functools
from collections.abc import Iterator
from pathlib import Path

import torch

from sandbox.kit.compilers import nvrtc
from sandbox.kit.cuda import device_arch
from sandbox.kit.errors import CompileError
from sandbox.memory.gpu import call, launch

THREADS, BLOCKS = 512, 528
"""Threads of a block, and about how many blocks a launch has."""
ALIGNED = 16
"""Bytes to which the numbers of every row must be aligned."""
AT_ONCE = 1 << 24
"""Numbers that torch measures at once. The computation takes ten times the memory of these elements in float64."""
REALS = torch.bfloat16, torch.float16, torch.float32, torch.float64


def to_cubin(y: torch.dtype, b: torch.dtype, arch: str) -> bytes:
    """The pass for these dtypes. Raises CompileError. It uses no cache, because kernels can write to some."""
    words = tuple(f"-D{name}={str(dtype).removeprefix('torch.')}" for name, dtype in (("Y", y), ("B", b)))
    return nvrtc.to_cubin(Path(__file__).with_suffix(".cu").read_text(), arch, words, front="")


@functools.cache
def _kernel(y: torch.dtype, b: torch.dtype) -> ctypes.c_void_p | None:
    """The pass for these dtypes, loaded on this rank's device; None without NVRTC."""
    module, found = ctypes.c_void_p(), ctypes.c_void_p()
    try:
        call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(to_cubin(y, b, device_arch())))
    except CompileError:
        return None
    call("cuModuleGetFunction", ctypes.byref(found), module, b"measure")
    return found


def rows_of_reals(rows: torch.Tensor) -> torch.Tensor:
    """Rows with real and imaginary parts side by side. rows: [rows, elements]."""
    return torch.view_as_real(rows).flatten(1) if rows.is_complex() else rows


def measures(y: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """By row: the norm of b, that of y - b, and the largest |y - b| / (|b| + s) with s the RMS of b: float64 [rows, 3].

    y, b: [rows, numbers], real; b of y's dtype or float64. If a number is not finite, or if squares overflow in b's precision (at
    least float32), a norm is not finite either.
    """
    both, (rows, n) = (y, b), y.shape
    steps = [each.stride(0) for each in both]
    lie = [each.data_ptr() | each.stride(0) * each.element_size() for each in both]
    fits = not any(place % ALIGNED for place in lie) and all(each.stride(1) == 1 for each in both)
    fits &= y.is_cuda and y.dtype in REALS and b.dtype in (y.dtype, torch.float64) and n > 0
    if not fits or (kernel := _kernel(y.dtype, b.dtype)) is None:
        return _by_torch(y, b)
    found = y.new_zeros(rows, 3, dtype=torch.float64)
    blocks = min(-(-n // THREADS), BLOCKS // rows + 1)
    for second in range(2):
        launch(kernel, (blocks, rows), THREADS, y.data_ptr(), b.data_ptr(), n, *steps, found.data_ptr(), second)
    found[:, :2].sqrt_()
    return found


def _by_torch(y: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (rows, n), kind = y.shape, torch.float64 if b.dtype is torch.float64 else torch.float32

    def parts() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for first in range(0, n, each := max(1, AT_ONCE // rows)):
            of_b = b[:, first : first + each].to(kind)
            yield of_b, y[:, first : first + each].to(kind) - of_b

    kept = [*parts()] if rows * n <= AT_ONCE else None
    found = y.new_zeros(rows, 3, dtype=torch.float64)
    for both in kept or parts():
        found[:, :2] += torch.stack([torch.linalg.vector_norm(part, dim=1).double().square() for part in both], dim=1)
    found.sqrt_()
    scale = (found[:, :1] / max(1, n) ** 0.5).to(kind)
    for of_b, off in kept or parts():
        found[:, 2] = torch.maximum(found[:, 2], off.abs_().div_(of_b.abs().add_(scale)).amax(dim=1))
    return found
