"""The arguments that a launch passes to the driver, read back from the addresses that the driver gets."""

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sandbox.kit import cuda, layout
from sandbox.kit.compilers.arguments import exported
from sandbox.kit.errors import ArgumentError

SOURCE = """
extern "C" __global__ void all_kinds(Px px, const bf16* x, i64 n, u64 most, int few, u32 word, short s, u8 byte, bool yes,
        float f, double d, PxNumbers list) {}
extern "C" __global__ void none() {}
"""
FUNCTIONS = exported(SOURCE)
PX = layout.make_px([11, 12], [21, 22], (0, 1), 1)
READ_AS = (
    layout.Px, ctypes.c_uint64, ctypes.c_int64, ctypes.c_uint64, ctypes.c_int32, ctypes.c_uint32, ctypes.c_int16, ctypes.c_uint8,
    ctypes.c_bool, ctypes.c_float, ctypes.c_double, layout.PxNumbers,
)  # fmt: skip
GIVEN = (PX, 1 << 40, -(1 << 40), (1 << 64) - 1, -5, (1 << 32) - 1, -7, 255, True, 0.5, -1e300, [3, -4])


class Driver:
    """A driver that records the arguments of the last launch."""

    def __init__(self) -> None:
        self.shape: tuple[int, ...] = ()
        self.arguments: list[Any] = []

    def launchKernel(self, handle: int, *given: int) -> None:
        """Records a launch. given: grid, block, shared bytes, stream, addresses of the arguments, extra."""
        self.shape = given[:8]
        table = (ctypes.c_void_p * len(READ_AS)).from_address(given[8])
        self.arguments = [
            kind.from_buffer_copy(_bytes_at(at, kind)) for kind, at in zip(READ_AS, table, strict=True) if at
        ]


def _bytes_at(address: int, kind: Any) -> bytes:
    return ctypes.string_at(address, ctypes.sizeof(kind))


@pytest.fixture
def launch(monkeypatch):
    """The launcher of kernel all_kinds with grid 3 and block 64, and the driver it launches with."""
    driver = Driver()
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 77, raising=False)
    kernel = SimpleNamespace(function=FUNCTIONS["all_kinds"], handle=5, driver=driver, device=0, is_cooperative=False)
    return cuda.Launcher(kernel, (3, 1, 1, 64, 1, 1, 0)), driver  # type: ignore[arg-type]


def test_every_kind_of_argument_arrives(launch):
    kernel, driver = launch
    kernel(*GIVEN)
    px, *scalars, numbers = driver.arguments
    assert driver.shape == (3, 1, 1, 64, 1, 1, 0, 77)
    assert (list(px.buf)[:2], list(px.sig)[:2], px.rank, px.world) == ([11, 12], [21, 22], 1, 2)
    assert [scalar.value for scalar in scalars] == list(GIVEN[1:-1])
    assert list(numbers.at)[:3] == [3, -4, 0]


def test_the_next_launch_has_its_own_arguments(launch):
    kernel, driver = launch
    kernel(*GIVEN)
    other = layout.make_px([1], [2], (0,), 0)
    kernel(other, 9, 8, 7, 6, 5, 4, 3, False, 2, 1, [])
    px, *scalars, numbers = driver.arguments
    assert (px.buf[0], px.world) == (1, 1)
    assert [scalar.value for scalar in scalars] == [9, 8, 7, 6, 5, 4, 3, False, 2.0, 1.0]
    assert not any(numbers.at)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (0, 5, "takes symm.px"),
        (1, 1.5, "tensor or an address, got float"),
        (1, torch.zeros(1, dtype=torch.bfloat16), "takes a tensor on cuda"),
        (2, torch.ones(1, dtype=torch.int64), "takes an int, got Tensor"),
        (9, "1", "takes a number, got str"),
    ],
)
def test_it_refuses_what_does_not_fit(launch, place, value, words):
    kernel, driver = launch
    with pytest.raises(ArgumentError, match=words):
        kernel(*GIVEN[:place], value, *GIVEN[place + 1 :])
    assert not driver.arguments


def test_it_counts_arguments(launch):
    with pytest.raises(ArgumentError, match="takes 12 arguments, got 11"):
        launch[0](*GIVEN[:-1])


def test_a_kernel_without_arguments(monkeypatch):
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0, raising=False)
    seen = []
    driver = SimpleNamespace(launchCooperativeKernel=lambda *given: seen.append(given))
    kernel = SimpleNamespace(function=FUNCTIONS["none"], handle=5, driver=driver, device=0, is_cooperative=True)
    cuda.Launcher(kernel, (2, 1, 1, 32, 1, 1, 0))()  # type: ignore[arg-type]
    assert seen[0][:9] == (5, 2, 1, 1, 32, 1, 1, 0, 0)
    assert len(seen[0]) == 10


def test_values_of_backend_are_passed_by_address(monkeypatch):
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0, raising=False)
    (function,) = exported('extern "C" __global__ void k(ncclWindow_t window, i64 n) {}').values()
    seen = []
    driver = SimpleNamespace(launchKernel=lambda *given: seen.append((ctypes.c_void_p * 2).from_address(given[9])[:]))
    kernel = SimpleNamespace(function=function, handle=5, driver=driver, device=0, is_cooperative=False)
    passed = ctypes.c_void_p(0)
    cuda.Launcher(kernel, (1, 1, 1, 32, 1, 1, 0))(SimpleNamespace(passed={"ncclWindow": passed}), -3)  # type: ignore[arg-type]
    assert seen[0][0] == ctypes.addressof(passed)
    assert seen[0][1] != seen[0][0]
