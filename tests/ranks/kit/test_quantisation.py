"""E4M3 of the block quantisation on the CPU: the same bits as torch for all 16-bit floats and for float32 near ties."""

import shutil

import cuda_on_cpu as emulation
import pytest
import torch

from sandbox.kit.blocks.quantisation import E4M3

KERNELS = r"""
extern "C" __global__ void encode(const float* x, int* code, i64 n) {
    for (i64 i = threadIdx.x; i < n; i += blockDim.x) code[i] = e4m3x2_from(x[i], 0);
}
extern "C" __global__ void decode(const int* code, float* x, i64 n) {
    for (i64 i = threadIdx.x; i < n; i += blockDim.x) x[i] = from_e4m3(code[i]);
}
"""
SATURATES = 464.0
"""Above it, versions of torch differ: they give the largest code or NaN."""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation is compiled by g++"),
]


@pytest.fixture(scope="module")
def kernels():
    return emulation.compile(E4M3 + KERNELS)


def codes_of(kernels, values: torch.Tensor) -> torch.Tensor:
    found = torch.empty(values.numel(), dtype=torch.int32)
    kernels.encode[1, 64](values, found, values.numel())
    return found


def codes_by_torch(values: torch.Tensor) -> torch.Tensor:
    return values.to(torch.float8_e4m3fn).view(torch.uint8).int()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_16_bit_float_has_code_of_torch(kernels, dtype):
    values = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(dtype).float()
    values = values[(values.abs() <= SATURATES) | values.isnan()]
    assert torch.equal(codes_of(kernels, values), codes_by_torch(values))


def test_float32_near_ties_has_code_of_torch(kernels):
    codes = torch.arange(126, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    ties = (codes[1:] + codes[:-1]) / 2
    bits = ties.view(torch.int32)[:, None] + torch.arange(-3, 4, dtype=torch.int32)
    values = bits.reshape(-1).view(torch.float32)
    values = torch.cat((values, -values))
    assert torch.equal(codes_of(kernels, values), codes_by_torch(values))


def test_every_code_has_its_value(kernels):
    codes = torch.arange(256, dtype=torch.int32)
    found = torch.empty(256)
    kernels.decode[1, 64](codes, found, 256)
    wanted = codes.to(torch.uint8).view(torch.float8_e4m3fn).float()
    numbers = ~wanted.isnan()
    assert torch.equal(found.isnan(), wanted.isnan())
    assert torch.equal(found[numbers].view(torch.int32), wanted[numbers].view(torch.int32))
