"""Speedups from rounds: identical code is even, a real difference is seen, noise is called noise."""

import random

import pytest

from sandbox.interval import MARGIN, device_margin, outcome, settled, speedup


def rounds(mean, spread, count, seed):
    generator = random.Random(seed)
    return [mean * generator.lognormvariate(0, spread) for _ in range(count)]


def test_identical_code_is_never_called_faster():
    verdicts = [
        outcome(speedup(rounds(100, 0.08, 25, 2 * i), rounds(100, 0.08, 25, 2 * i + 1), MARGIN["cpu"]))
        for i in range(200)
    ]
    assert verdicts.count("faster") <= 2
    assert verdicts.count("slower") <= 2


@pytest.mark.parametrize(("factor", "expected"), [(1.5, "faster"), (0.6, "slower"), (1.01, "even")])
def test_a_difference_beyond_the_noise_is_seen(factor, expected):
    interval = speedup(rounds(100 * factor, 0.05, 25, 1), rounds(100, 0.05, 25, 2), MARGIN["cpu"])
    assert outcome(interval) == expected
    assert interval.low <= interval.median <= interval.high


def test_wild_rounds_are_too_noisy():
    assert outcome(speedup(rounds(100, 1.5, 11, 1), rounds(100, 1.5, 11, 2), 0.03)) == "too noisy"


def test_the_margin_is_part_of_the_interval():
    steady = [100.0] * 15
    assert outcome(speedup([102.0] * 15, steady, 0.03)) == "even"
    assert outcome(speedup([104.0] * 15, steady, 0.03)) == "faster"
    assert settled(speedup(steady, steady, 0.03), 0.03)


@pytest.mark.parametrize("count", [1, 2])
def test_few_rounds_say_so(count):
    interval = speedup([200.0] * count, [100.0] * count, 0.03)
    assert interval.low <= 1.0
    assert interval.high >= 2.0


def test_device_time_of_many_small_kernels_allows_for_more():
    assert device_margin(0.01, call_us=1310, device_us=1300) == pytest.approx(0.01, rel=0.01)
    assert device_margin(0.01, call_us=120, device_us=40) == pytest.approx(0.03)
    assert device_margin(0.01, call_us=500, device_us=1) == pytest.approx(0.05)
    assert device_margin(0.01, call_us=30, device_us=40) == pytest.approx(0.01)
