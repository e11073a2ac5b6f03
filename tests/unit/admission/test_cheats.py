"""Outputs that must not pass: what each of them changes."""

import pytest
import torch

from problems.catalogue import load_catalogue
from sandbox.admission import cheats
from sandbox.admission.admission import sizes_of
from sandbox.admission.cheats import in_blocks, significant, without_small
from sandbox.memory.slots import DTYPES
from sandbox.memory.trees import flatten


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("value", [0, 1])
def test_the_last_element_changes_and_no_other(dtype: torch.dtype, value: int) -> None:
    tensor = torch.full((2, 3), value).to(dtype)
    other = cheats.last_changed(tensor)
    same = [bool(a == b) for a, b in zip(tensor.reshape(-1), other.reshape(-1), strict=True)]
    assert same == [True] * 5 + [False]
    assert (other.dtype, other.shape) == (dtype, tensor.shape)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_an_element_that_is_not_finite_becomes_zero(value: float) -> None:
    assert cheats.last_changed(torch.tensor([1.0, value]))[-1] == 0


def test_an_empty_tensor_stays_as_it_is() -> None:
    assert cheats.last_changed(torch.empty(0, 4)).shape == (0, 4)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_dtype_is_always_another(dtype: torch.dtype) -> None:
    assert cheats.other_dtype(torch.ones(2).to(dtype)).dtype != dtype


def test_eight_bits_round_only_floating_and_complex_values() -> None:
    drawn = torch.randn(100)
    error = ((cheats.eight_bits(drawn) - drawn).abs() / drawn.abs().max()).max()
    assert 1e-3 < float(error) < 0.1
    assert cheats.eight_bits(drawn).unique().numel() < drawn.unique().numel() + 1
    assert cheats.eight_bits(torch.complex(drawn, drawn)).real.equal(cheats.eight_bits(drawn))
    assert cheats.eight_bits(torch.arange(1000)).equal(torch.arange(1000))


def test_input_is_returned_where_shape_and_dtype_fit() -> None:
    x, y = torch.randn(3), torch.randn(2, 2)
    structure, leaves = cheats.returns_input(flatten((torch.ones(2, 2), torch.ones(5))), {"x": x, "y": y})
    assert structure == "(T,T)"
    assert leaves[0][1] is y
    assert leaves[1][1].equal(torch.zeros(5))


def test_outputs_without_variance_are_named() -> None:
    output = flatten({"a": torch.ones(4), "b": torch.tensor([1.0, 2.0]), "c": torch.ones(1), "d": torch.ones(4).int()})
    assert cheats.without_variance(output) == ["a"]
    assert cheats.without_variance(cheats.changed(output, torch.zeros_like)) == ["a", "b"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.complex64])
def test_blocks_of_integers_lose_half_step_at_most(dtype: torch.dtype) -> None:
    drawn = torch.randn(7, 11, dtype=torch.float32).to(dtype)
    coarse = in_blocks(8)(drawn)
    assert (coarse.dtype, coarse.shape) == (drawn.dtype, drawn.shape)
    off = (coarse - drawn).abs().max() / drawn.abs().max()
    assert 1e-3 < float(off) < 1e-2 * 2**0.5
    assert float((in_blocks(16)(drawn.to(torch.complex128)) - drawn).abs().max()) < 1e-3


def test_block_has_own_scale_and_keeps_nonfinite_values() -> None:
    tensor = torch.cat([torch.full((32,), 1e-3), torch.full((32,), 1e3), torch.zeros(5)])
    assert in_blocks(8)(tensor).allclose(tensor)
    tensor[3], tensor[40] = float("nan"), float("inf")
    assert in_blocks(8)(tensor).isnan().equal(tensor.isnan())
    assert in_blocks(8)(tensor).isinf().equal(tensor.isinf())
    assert in_blocks(8)(torch.arange(9)).equal(torch.arange(9))


def test_six_significant_bits() -> None:
    drawn = torch.randn(100)
    coarse = significant(6)(drawn)
    assert 2**-9 < float(((coarse - drawn) / drawn).abs().max()) <= 2**-6
    assert significant(6)(coarse).equal(coarse)
    assert significant(6)(torch.tensor([63.0, 64.0, 65.0, float("inf")])).tolist()[:2] == [63.0, 64.0]


def test_the_smallest_tenth_is_left_out() -> None:
    drawn = torch.randn(100)
    left = without_small(drawn)
    assert int((left == 0).sum()) == 10
    assert float(drawn[left == 0].abs().max()) < float(left[left != 0].abs().min())
    assert without_small(torch.arange(100)).equal(torch.arange(100))


def test_sums_in_other_order_are_right_and_differ() -> None:
    a, b = torch.randn(64, 3000, requires_grad=True), torch.randn(3000, 8)
    plain = a @ b
    with cheats.OtherOrder():  # type: ignore[no-untyped-call]
        turned = a @ b
        added = torch.addmm(torch.ones(8), a, b)
        sums = a.sum(), a.sum(dim=1), a.mean(dim=(0, 1), keepdim=True)
        (gradient,) = torch.autograd.grad(turned.square().sum(), a)
    assert turned.allclose(plain, atol=1e-3)
    assert added.allclose(plain + 1, atol=1e-3)
    assert not turned.equal(plain)
    for found, right in zip(sums, (a.sum(), a.sum(dim=1), a.mean(dim=(0, 1), keepdim=True)), strict=True):
        assert found.allclose(right, atol=1e-2)
    assert gradient.allclose(torch.autograd.grad(plain.square().sum(), a)[0], rtol=1e-3, atol=1e-2)


def test_largest_setting_has_twice_the_larger_ones_sizes() -> None:
    problem = load_catalogue().find("1")
    larger, largest = (sizes_of(problem, name, 2, "float32") for name in ("larger", "largest"))
    assert {name: 2 * size for name, size in larger.items()} == largest
