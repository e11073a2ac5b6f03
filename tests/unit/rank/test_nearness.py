"""Distances of many outputs to the baseline's: near outputs pass, others are compared."""

import math

import pytest
import torch

from sandbox.memory import slots
from sandbox.memory.trees import flatten
from sandbox.rank.outputs.checks import Limits
from sandbox.rank.outputs.nearness import FAR, distance, distance_of_slots

LIMITS = Limits(1e-2, 4e-2, False)
EXACT = Limits(0.0, 0.0, True)
ROOM, SIZE = 4, slots.header_bytes(4) + 8192


def arena(*outputs: object) -> torch.Tensor:
    """Returns an output arena with these outputs in its slots and poison between them."""
    memory = torch.full((len(outputs) * SIZE,), slots.POISON, dtype=torch.uint8)
    for n, output in enumerate(outputs):
        slots.Slot(memory[n * SIZE : (n + 1) * SIZE], ROOM).pack(*flatten(output))
    return memory


def far(theirs: list[object], baseline: list[object], held: list[Limits]) -> list[float]:
    found = distance_of_slots(arena(*theirs), arena(*baseline), range(len(theirs)), SIZE, ROOM, lambda unpacked: held)
    return found.tolist()


def test_distance_counts_in_units_of_what_is_allowed() -> None:
    b = torch.ones(2, 100)
    y = b.clone()
    y[1] += 5e-3
    assert distance(y, b, LIMITS).tolist() == pytest.approx([0.0, 0.5], rel=1e-4)
    y[1, 7] += 0.4
    assert distance(y, b, LIMITS).tolist() == pytest.approx([0.0, 0.405 / 2 / 4e-2], rel=1e-4)


@pytest.mark.parametrize(("sign", "change"), [(1, 0.4), (1, -0.4), (-1, 0.4), (-1, -0.4)])
def test_one_element_too_far_on_either_side(sign: int, change: float) -> None:
    b = sign * torch.ones(1, 2000)
    y = b.clone()
    y[0, 7] += change  # the RMS error stays within its limit
    assert distance(y, b, LIMITS).tolist() == pytest.approx([0.4 / 2 / 4e-2], rel=1e-4)


def test_coarse_row_is_far_where_rows_have_limits() -> None:
    held = Limits(1e-2, 4e-2, False, along=1, slice_rms=1.2e-2)
    b = torch.ones(4, 64, 5)
    honest, coarse = b + 6e-3, b.clone()
    coarse[:, 63] += 3e-2  # within the limits of the whole
    assert far([honest, coarse], [b, b], [held]) == pytest.approx([0.6, 2.5], rel=1e-4)


@pytest.mark.parametrize("off", [0.0, 1e-6])
@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_every_output_of_a_slot_counts(wrong: int, off: float) -> None:
    right = [torch.ones(4), torch.ones(3), torch.ones(2, 2)]
    theirs = [t * (1 + off) for t in right]
    theirs[wrong] += 1
    assert far([tuple(theirs)], [tuple(right)], [LIMITS] * 3)[0] > 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.complex64])
def test_one_wrong_slot_of_many_is_far(dtype: torch.dtype) -> None:
    right = [torch.randn(9, 7).to(dtype) for _ in range(5)]
    wrong: list[object] = [t * (1 + 1e-3) for t in right]
    assert max(far(wrong, list(right), [LIMITS])) <= 1
    wrong[3] = torch.zeros_like(right[3])
    found = far(wrong, list(right), [LIMITS])
    assert found[3] > 1
    assert max(found[:3] + found[4:]) <= 1


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.bool])
def test_whole_numbers_are_the_same_or_far(dtype: torch.dtype) -> None:
    b = torch.tensor([0, 1, 1, 0]).to(dtype)
    y = b.clone()
    y[2] = 0
    assert far([b, y], [b, b], [EXACT]) == [0.0, FAR]


def test_exact_outputs_may_differ_in_zero_sign_only() -> None:
    b = torch.tensor([[0.0, math.nan, 2.0]])
    y = torch.tensor([[-0.0, -math.nan, 2.0]])
    assert distance(y, b, EXACT).tolist() == [0.0]
    assert distance(y + 1e-6, b, EXACT).tolist() == [FAR]


def test_infinities_and_nan_must_match_the_baseline() -> None:
    b = torch.tensor([[math.inf, math.nan, 1.0]]).repeat(4, 1)
    y = b.clone()
    y[1, 0] = -math.inf
    y[2, 2] = math.nan
    y[3, 2] = 1.001
    found = distance(y, b, LIMITS).tolist()
    assert found[:3] == [0.0, FAR, FAR]
    assert 0 < found[3] <= 1


def test_zeros_are_near_zeros_alone() -> None:
    zeros = torch.zeros(1, 8)
    assert distance(zeros, zeros, LIMITS).tolist() == [0.0]
    assert distance(zeros + 1e-9, zeros, LIMITS).tolist() == [FAR]
    huge = torch.full((1, 8), 1e30)
    assert distance(huge * 1.001, huge, LIMITS).tolist() == [FAR]
    assert distance(huge, huge, LIMITS).tolist() == [0.0]


def test_other_shapes_than_the_baseline_are_far() -> None:
    b = torch.ones(4, 3)
    theirs: list[object] = [b, b.double(), b[:2], (b, b), b.t().contiguous().t()]
    assert far(theirs, [b] * 5, [LIMITS, LIMITS]) == [0.0, FAR, FAR, FAR, FAR]
    assert far([b.t().contiguous().t(), b], [b.t().contiguous().t()] * 2, [LIMITS]) == [0.0, 0.0]


def test_outputs_of_another_device_are_far() -> None:
    b = torch.ones(4)
    theirs = arena(b + 1e-6)
    dtype, dims, _, *rest = slots._LEAF.unpack_from(theirs.numpy(), slots.FIRST_LEAF)
    slots._LEAF.pack_into(theirs.numpy(), slots.FIRST_LEAF, dtype, dims, 1, *rest)
    assert distance_of_slots(theirs, arena(b), [0], SIZE, ROOM, lambda u: [LIMITS]).tolist() == [FAR]


def test_an_output_that_never_arrived_is_far() -> None:
    b = torch.ones(4)
    theirs = arena(b, b)
    theirs[SIZE:] = slots.POISON
    for its in (arena(b, b), theirs):
        assert distance_of_slots(theirs, its, [0, 1], SIZE, ROOM, lambda u: [LIMITS]).tolist() == [0.0, FAR]


def test_outputs_whose_limits_are_not_known_are_far() -> None:
    b = torch.ones(4)
    assert far([(b, b)], [(b, b + 1)], [LIMITS]) == [FAR]


def test_shapes_may_change_from_slot_to_slot() -> None:
    outputs: list[object] = [torch.randn(n) for n in (3, 3, 5, 1, 0)]
    wrong = list(outputs)
    wrong[2] = torch.randn(5)
    assert far(outputs, outputs, [LIMITS]) == [0.0] * 5
    assert [each > 1 for each in far(wrong, outputs, [LIMITS])] == [False, False, True, False, False]
    assert far(outputs[:1] * 5, outputs, [LIMITS])[2:] == [FAR] * 3


def test_only_the_chosen_slots_are_looked_at() -> None:
    b = torch.ones(4)
    wrong = arena(b, b * 2, b, b * 3)
    found = distance_of_slots(wrong, arena(b, b, b, b), [0, 2, 3], SIZE, ROOM, lambda u: [LIMITS])
    assert [each > 1 for each in found.tolist()] == [False, False, True]
