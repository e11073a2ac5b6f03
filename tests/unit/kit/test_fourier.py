"""Blocks for transforms: which rank owns which pair of rows, transposed blocks, and tables against torch."""

import pytest
import torch

from sandbox.kit.blocks import shared_fft
from sandbox.kit.blocks.fourier import pair_owners, row_pairs, transposed

WORLDS = range(1, 9)


def heights(world):
    return [n0 for n0 in (1, 2, 7, 8, 15, 48, 105, 720, 840) if n0 % world == 0]


@pytest.mark.parametrize("world", WORLDS)
def test_every_pair_has_one_owner_of_its_row(world):
    for n0 in heights(world):
        owners = pair_owners(n0, world)
        assert sorted(k for own in owners for k in own) == list(range(n0 // 2 + 1))
        for member, own in enumerate(owners):
            assert all(member in (k // (n0 // world), (n0 - k) % n0 // (n0 // world)) for k in own)


@pytest.mark.parametrize("world", WORLDS)
def test_plan_lists_pairs_in_equally_many_places(world):
    for n0 in heights(world):
        plan = row_pairs(n0, world, torch.device("cpu"))
        assert plan.height * world == n0
        listed = [[k for k in own if k >= 0] for own in plan.pairs.view(world, plan.count).tolist()]
        assert listed == pair_owners(n0, world)


def test_rows_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="10 rows of a spectrum do not divide by 4 ranks"):
        row_pairs(10, 4, torch.device("cpu"))


def test_transposed_copies():
    x = torch.arange(24.0).view(2, 3, 4)
    assert torch.equal(transposed(x), x.transpose(1, 2))
    assert transposed(x).is_contiguous()


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
