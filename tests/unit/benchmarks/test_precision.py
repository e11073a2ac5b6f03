"""The measurement `precision`: what was known after some seconds of timing."""

import pytest

from benchmarks.tables.added_cost import AddedCost
from benchmarks.tables.precision import SECONDS, cost_for, points
from sandbox.protocol.events import Microseconds
from sandbox.protocol.result import Batches, Samples


def pairs(count: int, every_s: float, us: float) -> list[Batches]:
    """Pairs of ten calls on either side, one every so many seconds."""
    return [Batches(10, us, us * (0.99, 1.01)[n % 2], n % 4 < 2, n % 3, every_s * (n + 1)) for n in range(count)]


def test_pairs_and_duty_are_those_until_then() -> None:
    found = points(Samples(call=pairs(30, 0.1, 1000.0), device=pairs(6, 0.5, 500.0)))
    assert [point.seconds for point in found] == [*(each for each in SECONDS if each <= 3.0), 3.0]
    assert [(point.call_pairs, point.device_pairs) for point in found] == [(10, 2), (25, 5), (30, 6)]
    assert found[-1].duty == pytest.approx((30 * 20e-3 + 6 * 10e-3) / 3.0, rel=0.01)


def test_more_pairs_are_more_precise() -> None:
    early, late = points(Samples(call=pairs(40, 0.1, 1000.0)))[-2:]
    assert late.call is not None
    assert early.call is None or late.call < early.call
    assert late.device is None


def test_a_run_without_pairs_has_no_precision() -> None:
    assert points(Samples()) == []


def test_a_cost_of_the_host_is_expected_where_no_device_hides_it() -> None:
    waiting = Microseconds(call=100.0, device=None)
    assert (cost_for(waiting, "cpu").expected, cost_for(waiting, "cuda").expected) == ("call", "")
    assert cost_for(Microseconds(call=100.0, device=80.0), "cuda") == AddedCost("device", 0.05, "device", 4.0)
