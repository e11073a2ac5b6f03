"""Recorded calls on a real GPU: products, copies and launches, with arguments at other addresses in every call."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from sandbox.kit import cuda
from sandbox.kit.blocks.side_stream import beside, join
from sandbox.kit.errors import KernelError
from sandbox.kit.recorded import recorded

CALLS = 8
SOURCE = 'extern "C" __global__ void add(float* y, u32 number) { atomicAdd(y + threadIdx.x, (float)number); }'


def product(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> None:
    half = len(x) // 2
    torch.mm(x[:half], w, out=y[:half])
    torch.mm(x[half:], w, out=y[half:])


def exchanged(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> None:
    own = torch.mm(x, w)
    with beside():
        y.copy_(own)
    own.relu_()
    join()
    y.add_(own)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("function", [product, exchanged])
def test_moved_arguments_give_the_same_result(function: Callable[..., None], dtype: torch.dtype) -> None:
    call, kept = recorded(function), []
    for number in range(CALLS):
        size = 256 if number % 3 else 512
        x, w, y, expected = (torch.randn(size, size, device="cuda").to(dtype) for _ in range(4))
        kept += [x, w, y]  # so that no address comes twice
        function(x, w, expected)
        call(x, w, y)
        assert torch.equal(y, expected), number
    issued = [recording for recording in call._recordings.values() if recording is not None and any(recording._moves)]
    assert issued or function is exchanged  # bytes that torch leaves unset may keep a call from being recorded


@pytest.mark.gpu
def test_a_number_of_its_own_is_refused() -> None:
    module: Any = cuda.compile(SOURCE)
    numbers = iter(range(100))
    call = recorded(lambda y: module.add[1, 32](y, next(numbers)))
    y = torch.zeros(32, device="cuda")
    call(y)
    with pytest.raises(KernelError, match="parameters of add are"):
        call(y)
