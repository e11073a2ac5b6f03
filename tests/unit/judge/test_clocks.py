"""The clocks of a run: the overhead that is subtracted, whose no-op batches count, and what counts as foreign work."""

import math
import random

import pytest
from msgspec.structs import replace

from sandbox.timing.clocks import CONTENDER_INDEX, FOREIGN_US, LEAST_SHARE, Clock, ForeignWork
from sandbox.timing.interval import Pair, half_width, outcome


def clock(
    name: str = "device",
    rival: bool = False,
    noop: dict[int, list[float]] | None = None,
    times: tuple[float, float] = (100.0, 50.0),
) -> Clock:
    made = Clock(name, rival=rival)
    for world, found in (noop or {}).items():
        for us in found:
            made.note_noop(world, us)
    for number in range(8):
        made.raw.append(Pair(number % 2, *times, baseline_first=number % 3 == 0, round=number // 2))
    return made


def test_a_clock_without_pairs_says_nothing() -> None:
    empty = Clock("call")
    assert empty.estimate() is None
    assert empty.medians() == (None, None)
    assert empty.samples() == []
    assert empty.overhead_us == 0.0
    assert empty.overhead_error() == 0.0
    assert empty.learned_offsets() == {}


def test_overhead_is_subtracted_alike_on_both_sides() -> None:
    made = clock("call", noop={0: [9, 10, 11], 1: [11, 12, 13]})
    assert made.overhead_us == 11
    assert made.medians() == (89, 39)


def test_between_two_kernels_quicker_word_counts_for_both() -> None:
    made = clock(rival=True, noop={0: [5.0], CONTENDER_INDEX: [45.0]})
    assert made.overheads == (5, 5)


def test_overhead_leaves_share_and_device_time() -> None:
    made = clock("call", noop={0: [60.0], 1: [60.0]})
    assert made.medians() == (40.0, 50.0 * LEAST_SHARE)
    made.estimate(clock(times=(45.0, 30.0)))
    assert made.medians() == (45.0, 30.0)
    made.estimate(clock(times=(101.0, 51.0)))
    assert made.medians() == (100.0, 50.0)


def test_device_time_does_not_hide_noise_of_calls() -> None:
    noise = random.Random(1)
    made, device = Clock("call"), clock(times=(100.7, 100.0))
    for world in (0, 1):
        made.note_noop(world, 12.0)
    for number in range(48):
        times = [110.0 * math.exp(noise.gauss(0, 0.02)) for _ in range(2)]
        made.raw.append(Pair(number % 2, *times, number % 3 == 0))
    alone = made.estimate()
    limited = made.estimate(device)
    assert made.medians() == pytest.approx((100.7, 100.0))
    assert alone is not None
    assert limited is not None
    assert half_width(limited) > 0.8 * half_width(alone)
    assert outcome(limited) == "even"
    device.estimate()
    assert made.estimate(device) == limited  # in whichever order the clocks are estimated


def test_uncertain_device_time_widens_what_it_limits() -> None:
    made = clock("call", noop={0: [60.0], 1: [60.0]})  # 60 of 100 us, but device time leaves 30 of 50
    sure, unsure = clock(times=(30.0, 20.0)), clock(times=(30.0, 20.0))
    unsure.raw = [replace(pair, contender_us=20.0 + (-1) ** number) for number, pair in enumerate(unsure.raw)]
    narrow, wide = made.estimate(sure), made.estimate(unsure)
    assert half_width(wide) > half_width(narrow)


def test_first_intervals_are_widest_for_short_device_times() -> None:
    def width(name: str, us: float) -> float:
        noise, made = random.Random(1), Clock(name)
        for number in range(16):
            made.raw.append(
                Pair(number % 4, *(us * math.exp(noise.gauss(0, 0.005)) for _ in range(2)), number % 3 == 0)
            )
        found = made.estimate()
        assert found is not None
        return half_width(found)

    assert width("device", 2000.0) < width("call", 2000.0) < width("device", 50.0)


def test_an_uncertain_cost_makes_the_interval_wider() -> None:
    sure, unsure = clock("call", noop={0: [10.0] * 8}), clock("call", noop={0: [1.0, 20.0] * 4})
    assert sure.overhead_error() == 0.0
    assert unsure.overhead_error() > 0.0
    own = clock("call", noop={0: [50.0] * 20, CONTENDER_INDEX: [1.0, 20.0] * 4})  # the kernel's no-op batches
    assert own.overhead_error() > 0.0
    narrow, wide = sure.estimate(), unsure.estimate()
    assert wide.high / wide.low > narrow.high / narrow.low


@pytest.mark.parametrize(
    ("busy", "quiet", "fault"), [(0, 10, False), (1, 0, False), (2, 0, True), (2, 8, True), (2, 9, False)]
)
def test_foreign_work_counts_before_fifth_of_batches(busy: int, quiet: int, fault: bool) -> None:
    looks = ForeignWork()
    for _ in range(busy):
        looks.note("contender, call", FOREIGN_US + 1)
    for _ in range(quiet):
        looks.note("contender, call", FOREIGN_US)
        looks.note("baseline, call", 0.0)
    assert bool(looks.fault) is fault
    if fault:
        assert f"{busy} of {busy + quiet} batches (contender, call time)" in looks.fault
