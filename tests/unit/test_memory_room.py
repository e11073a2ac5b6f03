"""Worlds that run the baseline are as many as a device's memory has room for; sizes that leave no room for one are refused."""

import pytest

from problems.setting import SizesRefused
from sandbox.rank.memory_room import CONTEXTS_BYTES, GIB, HELD, most_references


def test_each_takes_a_call_beside_the_kernels_own() -> None:
    device = CONTEXTS_BYTES + HELD * GIB + 5 * GIB + (3 + 1) * 10 * GIB
    assert most_references(device, slot=GIB, call=10 * GIB, oracle=5 * GIB) == 3
    assert most_references(device - 1, slot=GIB, call=10 * GIB, oracle=5 * GIB) == 2


def test_where_not_one_fits_the_sizes_are_refused_with_what_is_needed() -> None:
    device = CONTEXTS_BYTES + HELD * 10 * GIB + 2 * GIB
    assert most_references(device, slot=10 * GIB, call=GIB, oracle=0) == 1
    with pytest.raises(
        SizesRefused, match=r"10\.0 GiB .* 1\.0 GiB in each .* 1\.0 GiB, which is 55 GiB .* has 54 GiB"
    ):
        most_references(device, slot=10 * GIB, call=GIB, oracle=GIB)


def test_calls_that_take_nothing_have_room_for_any_number() -> None:
    assert most_references(80 * GIB, slot=0, call=0, oracle=0) > 1000
