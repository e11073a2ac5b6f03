"""Worlds that run the baseline are as many as a device's memory has room for; sizes that leave no room for one are refused."""

import pytest

from problems.setting import SizesRefused
from sandbox.rank.memory_room import CONTEXTS_BYTES, GIB, HEAP_BYTES, arenas_bytes, most_references


def test_arenas_are_two_of_inputs_and_three_of_outputs_with_as_many_slots_as_fit_one_side() -> None:
    assert arenas_bytes(10, inputs=2, outputs=1) == 3 * (2 * 2 + 3 * 1)
    assert arenas_bytes(10, inputs=20, outputs=1) == 2 * 20 + 3 * 1


def test_each_takes_a_call_beside_the_kernels_own() -> None:
    device = CONTEXTS_BYTES + HEAP_BYTES + 7 * GIB + 5 * GIB + (3 + 1) * 10 * GIB
    assert most_references(device, iterations=7 * GIB, call=10 * GIB, oracle=5 * GIB) == 3
    assert most_references(device - 1, iterations=7 * GIB, call=10 * GIB, oracle=5 * GIB) == 2


def test_where_not_one_fits_the_sizes_are_refused_with_what_is_needed() -> None:
    device = CONTEXTS_BYTES + 40 * GIB + 2 * GIB
    assert most_references(device, iterations=40 * GIB, call=GIB, oracle=0) == 1
    with pytest.raises(SizesRefused, match=r"take 40\.0 GiB .* 1\.0 GiB in each .* 1\.0 GiB: 55 GiB .* has 54 GiB"):
        most_references(device, iterations=40 * GIB, call=GIB, oracle=GIB)


def test_calls_that_take_nothing_have_room_for_any_number() -> None:
    assert most_references(80 * GIB, iterations=0, call=0, oracle=0) > 1000
