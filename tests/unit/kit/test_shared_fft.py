"""sandbox.kit.blocks.shared_fft: the tables, compared with torch's transform."""

import pytest
import torch

from sandbox.kit.blocks import shared_fft


def passes(x: torch.Tensor) -> torch.Tensor:
    """Computes the forward passes in float64."""
    n = len(x)
    if n == 1:
        return x
    radix = min(n, 8)
    turns = torch.outer(torch.arange(radix), torch.arange(n // radix)).double() * (-2 * torch.pi / n)
    parts = torch.fft.fft(x.view(radix, -1), dim=0) * torch.polar(torch.ones_like(turns), turns)
    return torch.cat([passes(part) for part in parts])


@pytest.mark.parametrize("length", [2, 8, 16, 64, 2048])
def test_frequencies_lie_where_the_passes_leave_them(length):
    x = torch.randn(length, dtype=torch.complex128)
    torch.testing.assert_close(passes(x), torch.fft.fft(x)[shared_fft.frequencies(length)])


@pytest.mark.parametrize("length", [64, 16384])
def test_pairs_hold_every_place_with_its_mate(length):
    tables = shared_fft.tables(length, torch.device("cpu"))
    order = shared_fft.frequencies(length)
    low, high = tables.pairs & 0xFFFF, tables.pairs >> 16
    assert torch.equal(order[high], (length - order[low]) % length)
    assert torch.equal(torch.cat((low, high)).unique(), torch.arange(length, dtype=torch.int32))
    assert len(low) == length // 2 + 1
    assert torch.equal(tables.turns, tables.roots[order[low]])
