"""Measures of outputs by two passes on a GPU: the same as torch's operations give."""

import math
from importlib.util import find_spec

import pytest
import torch

from sandbox.rank.outputs import checks, measures, nearness
from sandbox.rank.outputs.checks import Limits

LIMITS = Limits(1e-2, 4e-2, False)
DTYPES = (*measures.REALS, torch.complex64, torch.complex128)


@pytest.mark.skipif(find_spec("cupy") is None, reason="NVRTC comes with CuPy")
@pytest.mark.parametrize("y", measures.REALS)
def test_pass_compiles_for_outputs_and_oracles(y):
    for b in {y, torch.float64}:
        assert measures.to_cubin(y, b, "sm_90")[:4] == b"\x7fELF"


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("count", "scale"), [(1, 1.0), (7, 1e-6), (8, 1.0), (4097, 1e3), (100_003, 1.0)])
def test_two_passes_agree_with_operations_of_torch(dtype, count, scale, monkeypatch):
    exact = torch.complex128 if dtype.is_complex else torch.float64
    generator = torch.Generator("cuda").manual_seed(count)
    b = (scale * torch.randn(6, -(-count // 64) * 64, device="cuda", dtype=exact, generator=generator)).to(dtype)
    y = (b.to(exact) * (1 + 3e-3 * torch.randn(b.shape, device="cuda", dtype=exact, generator=generator))).to(dtype)
    y[1, 0], b[2, count // 2], b[4] = math.inf, math.nan, 0
    y[3, count - 1] = b[3, count - 1] = math.inf
    y[5] = b[5]
    y, b = y[:, :count], b[:, :count]
    oracle = b[0].to(exact) * (1 + 1e-3)
    real = measures.rows_of_reals(y).dtype
    assert None not in (measures._kernel(real, real), measures._kernel(real, torch.float64))
    here = nearness.distance(y, b, LIMITS), checks.errors(y[0], oracle)
    monkeypatch.setattr(measures, "_kernel", lambda *dtypes: None)
    there = nearness.distance(y, b, LIMITS), checks.errors(y[0], oracle)
    assert here[0].tolist() == pytest.approx(there[0].tolist(), rel=1e-4)
    assert [here[1].rms, here[1].max] == pytest.approx([there[1].rms, there[1].max], rel=1e-9)
