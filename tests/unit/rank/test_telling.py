"""Exceptions of a kernel: their kinds, and those with an unreadable message, reported by name and line."""

import pytest
import torch

from sandbox.kit.errors import BarrierTimeout, CompileError
from sandbox.protocol.frames import Kind
from sandbox.rank.kernel_module import describe, failure_kind, kernel_line, stand_in


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError

    @property
    def line(self) -> int:
        raise SystemExit


class Liar(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise RuntimeError


class Nameless(Exception, metaclass=Liar):
    pass


@pytest.mark.parametrize("error", [Unspeakable(), Nameless()])
def test_an_exception_whose_own_methods_fail_has_a_stand_in(error: Exception) -> None:
    try:
        raise error
    except Exception as caught:
        told = stand_in(caught)
    name = "Unspeakable" if isinstance(error, Unspeakable) else "Nameless"
    assert str(told) == "what it says cannot be read"
    assert describe(told, __file__).startswith(f"{name}: what it says cannot be read")
    assert kernel_line(told, __file__) > 0


class CUDADriverError(RuntimeError):
    """An exception like CuPy's."""

    def __init__(self, status: int) -> None:
        super().__init__("CUDA_ERROR")
        self.status = status


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError(), Kind.NO_MEMORY),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), Kind.NO_MEMORY),
        (CompileError("kernel:2: expected a `;`"), Kind.COMPILE_FAILED),
        (BarrierTimeout("rank 1 did not come", [1]), Kind.STALLED),
        (torch.AcceleratorError("CUDA error: an illegal memory access was encountered"), Kind.DEVICE),
        (CUDADriverError(700), Kind.DEVICE),
        (CUDADriverError(719), Kind.DEVICE),
        (CUDADriverError(1), Kind.RAISED),
        (ZeroDivisionError(), Kind.RAISED),
    ],
)
def test_what_noticed_a_fault_of_the_gpu_does_not_change_its_kind(error: Exception, kind: Kind) -> None:
    assert failure_kind(error, loading=False) is kind


def test_any_other_exception_before_there_is_a_solution_is_one_of_loading() -> None:
    assert failure_kind(ZeroDivisionError(), loading=True) is Kind.LOAD_FAILED
    assert failure_kind(CUDADriverError(719), loading=True) is Kind.DEVICE
