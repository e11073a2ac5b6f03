"""Speedups from pairs: identical code is the same speed, real differences show, noise and few pairs are too noisy."""

import math
import random
import subprocess
import sys
from statistics import NormalDist

import msgspec
import numpy as np
import pytest

from sandbox.protocol.events import Interval
from sandbox.timing import random_effects
from sandbox.timing.interval import FEWEST, HALF_WIDTHS, Pair, detectable_percent, half_width, outcome, turns_of
from sandbox.timing.interval import speedup as estimate
from sandbox.timing.random_effects import ERRORS, TAIL


def speedup(*args, **options) -> Interval:
    """Returns the interval of pairs that claim something."""
    found = estimate(*args, **options)[0]
    assert found is not None
    return found


STARVED = (
    *(
        (0, 10681, 127),
        (0, 4686, 112),
        (1, 12792, 121),
        (0, 3966, 9357),
        (1, 15508, 1261),
        (0, 6406, 25432),
        (1, 11788, 167),
    ),
    *((0, 10219, 124), (1, 5706, 171), (0, 55117, 9079), (1, 10303, 18161), (0, 13002, 22519), (1, 12166, 11142)),
    *((0, 59404, 21368), (1, 4440, 186), (0, 74815, 10121), (1, 4935, 18887), (0, 9406, 18770), (1, 69275, 36561)),
    *((0, 23535, 3180), (1, 34558, 9493), (0, 49952, 1291), (1, 40951, 7472), (0, 12613, 177)),
)
"""Reference, and microseconds per call of problem 1's baseline and house kernel, which is about 5 times as fast: 4 ranks on 2
cores beside other programs. In a batch of the kernel either no rank or every rank was preempted."""


def test_starved_ranks_give_no_claim():
    found = [Pair(*each, k % 2 == 0) for k, each in enumerate(STARVED)]
    assert speedup(found).low > 10  # the pairs alone do not show it
    told = estimate(found, waited=(4 * 0.68, 4 * 1.37))
    assert told[0] is None
    assert "the baseline's ranks waited for one 100 % of the time, the kernel's 100 %" in told[1]


@pytest.mark.parametrize(("waited", "expected"), [((0.7, 1.0), "faster"), ((0.9, 1.0), ""), ((1.0, 0.0), "")])
def test_lead_above_waits_of_the_baseline_is_told(waited, expected):
    told = estimate(pairs(40, factor=5.0), waited=waited)[0]
    assert (outcome(told) if told else "") == expected
    mirrored = [Pair(p.reference, p.contender_us, p.baseline_us, p.baseline_first) for p in pairs(40, factor=5.0)]
    told = estimate(mirrored, waited=waited[::-1])[0]
    assert (outcome(told) if told else "") == expected.replace("faster", "slower")


def test_interval_allows_for_waits():
    alone, waiting = speedup(pairs(48)), speedup(pairs(48), waited=(0.5, 0.2))
    assert waiting.low == pytest.approx(0.5 * alone.low)
    assert waiting.high == pytest.approx(alone.high / 0.8)


def pairs(count, spread=0.02, factor=1.0, worlds=3, offset=0.0, seed=0):
    generator = random.Random(seed)
    offsets = [generator.gauss(0, offset) for _ in range(worlds)]
    own = generator.gauss(0, offset)
    return [
        Pair(
            reference=k % worlds,
            baseline_us=100 * factor * math.exp(offsets[k % worlds] + generator.gauss(0, spread)),
            contender_us=100 * math.exp(own + generator.gauss(0, spread)),
            baseline_first=generator.random() < 0.5,
            round=k // 4,
        )
        for k in range(count)
    ]


@pytest.mark.parametrize(("factor", "expected"), [(1.5, "faster"), (0.6, "slower"), (1.0, "even")])
def test_a_difference_beyond_the_noise_is_seen(factor, expected):
    interval = speedup(pairs(40, factor=factor, seed=3))
    assert outcome(interval) == expected
    assert interval.low <= interval.median <= interval.high


def test_wild_pairs_claim_nothing_and_say_why():
    disturbed = estimate(pairs(9, spread=1.5))
    assert disturbed[0] is None
    assert disturbed[1] == "other work disturbed 8 of 9 pairs of batches, 6 others are needed"
    own = [Pair(k % 3, 100.0, 100.0 * 8.0 ** (k // 6), k % 4 < 2) for k in range(12)]
    assert estimate(own) == (None, "the times of neighbouring batches differ too much")


@pytest.mark.parametrize("count", range(FEWEST))
def test_few_pairs_claim_nothing(count):
    found = estimate(pairs(count, spread=0.0, factor=2.0))
    assert found[0] is None
    assert f"{FEWEST} are needed" in found[1]


@pytest.mark.parametrize("worlds", [1, 2, 3, 4])
@pytest.mark.parametrize("count", [6, 7, 8, 12, 40])
def test_equal_times_give_an_interval_with_1_inside(worlds, count):
    interval = speedup(pairs(count, spread=0.0, worlds=worlds))
    assert interval.low <= 1.0 <= interval.high
    assert interval.median == pytest.approx(1.0)


def test_times_that_are_none_are_left_out():
    sound = pairs(40, seed=5)
    broken = [Pair(0, value, 100.0, True) for value in (0.0, -1.0, math.inf, math.nan)]
    assert speedup([*sound, *broken]) == speedup(sound)
    quick = [Pair(p.reference, p.baseline_us / 1e3, p.contender_us / 1e3, p.baseline_first) for p in sound]
    assert speedup(quick).median == pytest.approx(speedup(sound).median)


def test_huge_outliers_do_not_move_it():
    sound = pairs(40, spread=0.01)
    wild = [
        Pair(p.reference, p.baseline_us * (1e6 if k % 13 == 0 else 1), p.contender_us, p.baseline_first)
        for k, p in enumerate(sound)
    ]
    interval = speedup(wild)
    assert interval.median == pytest.approx(1.0, abs=0.03)
    assert all(math.isfinite(end) for end in (interval.median, interval.low, interval.high))


def test_reading_intervals_needs_no_numpy():
    modules = "sandbox.timing.interval, sandbox.timing.stopping_rule, sandbox.timing.conclusion"
    code = f"import sys, {modules}; print('numpy' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "False"


def test_the_harness_uncertainty_is_part_of_the_interval():
    assert half_width(speedup(pairs(40), overhead_error=0.1)) > 0.3 > half_width(speedup(pairs(40)))


def test_the_tail_is_that_of_three_standard_errors():
    assert pytest.approx(NormalDist().cdf(-ERRORS), rel=1e-3) == TAIL
    assert pytest.approx((ERRORS + NormalDist().inv_cdf(0.95)) / ERRORS, rel=1e-2) == HALF_WIDTHS


@pytest.mark.parametrize(("freedom", "errors"), [(4, 6.62), (10, 3.96), (1000, 3.0)])
def test_few_degrees_of_freedom_widen_as_students(freedom, errors):
    found = random_effects.Fit(np.zeros((1, 2)), np.full((1, 2), 2.0), np.full(1, float(freedom)), np.zeros(1))
    _, low, high = random_effects.predict(found, NO_OFFSETS[:1])
    assert (-low[0], high[0]) == pytest.approx((errors, errors), rel=0.03)


def test_one_reference_allows_for_unseen_offsets():
    alone, several = pairs(40, spread=0.001, worlds=1), pairs(40, spread=0.001, worlds=4)
    assert detectable_percent(speedup(several)) < detectable_percent(speedup(alone))


RUNS = 3000
ALLOWED = 0.01 + 3 * math.sqrt(0.01 / RUNS)
"""The promised rate of false positives, plus three standard errors."""


def made_turns(references, turns, jitter, offset, seed=0):
    """Simulates log ratios [RUNS, pairs] of identical code; all references run beside each batch of the contender."""
    chance = np.random.default_rng(seed)
    batches = chance.normal(0, jitter, (RUNS, turns, references + 1))
    batches += chance.normal(0, offset, (RUNS, 1, references + 1))
    ratios = batches[:, :, :references] - batches[:, :, references:]
    first = chance.random((RUNS, turns * references)) < 0.5
    which = np.tile(np.arange(references), turns)
    return ratios.reshape(RUNS, -1), which, first, np.repeat(np.arange(turns), references)


NO_OFFSETS = np.tile(-np.arange(36.0), (RUNS, 1))
"""A history that says worlds do not differ."""


def called_and_width(found):
    """Returns the share of runs that are called faster or slower, and the median width of intervals."""
    _, low, high = random_effects.predict(found, NO_OFFSETS)
    return ((low > 0) | (high < 0)).mean(), np.median(high - low)


@pytest.mark.parametrize("references", [2, 4])
@pytest.mark.parametrize(("turns", "jitter"), [(6, 0.3), (12, 0.15), (30, 0.15)])
def test_pairs_sharing_a_batch_weigh_more_than_one(references, turns, jitter):
    shared, width = called_and_width(random_effects.fit(*made_turns(references, turns, jitter, 0.0)))
    ratios, _, first, turn = made_turns(1, turns, jitter, 0.0, seed=1)
    alone = random_effects.fit(ratios, np.arange(turns) % references, first, turn)
    assert shared <= ALLOWED
    assert width < 0.9 * called_and_width(alone)[1]


def test_pairs_that_share_a_batch_are_not_independent():
    ratios, which, first, turns = made_turns(4, 12, 0.1, 0.0)
    apart = called_and_width(random_effects.fit(ratios, which, first))
    together = called_and_width(random_effects.fit(ratios, which, first, turns))
    assert apart[0] > 3 * together[0]
    assert apart[1] < 0.8 * together[1]


def test_slow_changes_of_the_contender_widen_interval():
    ratios, which, first, turns = made_turns(2, 48, 0.02, 0.0)
    change = np.random.default_rng(6).normal(0, 0.05, (RUNS, 48))
    for turn in range(1, 48):
        change[:, turn] += 0.6 * change[:, turn - 1]
    found = random_effects.fit(ratios + change[:, turns], which, first, turns)
    told = np.median(np.sqrt(found.variances.sum(axis=1) / 4 + found.common))
    assert 0.9 < found.locations.mean(axis=1).std() / told < 1.3


def test_one_shared_contender_batch_claims_nothing():
    chance = random.Random(1)
    found = [
        Pair(k % 4, 200 * math.exp(chance.gauss(0, 0.01)), 100.0, True, turn=k // 4) for k in range(4 * FEWEST - 4)
    ]
    assert turns_of(found) == FEWEST - 1
    assert estimate(found)[0] is None
    more = [msgspec.structs.replace(found[0], turn=FEWEST), *found]
    assert outcome(speedup(more)) == "faster"
