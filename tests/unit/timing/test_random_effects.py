"""The model of log ratios: its standard errors, slow batches, and the history of world offsets."""

import math

import msgspec
import numpy as np
import pytest

from sandbox.timing import random_effects
from sandbox.timing.clocks import Clock
from sandbox.timing.interval import WIDEST, Pair, half_width, learned, outcome, speedup

RUNS = 4000


def made(pairs, sigma, references=4, tau=0.0, seed=0):
    """Simulates (log times of references, of the contender, indices, first) of identical code."""
    chance = np.random.default_rng(seed)
    which = np.arange(pairs) % references
    offsets = chance.normal(0, tau, (RUNS, references + 1))
    times = [chance.normal(0, sigma / math.sqrt(2), (RUNS, pairs)) for _ in range(2)]
    first = chance.random((RUNS, pairs)) < 0.5
    return times[0] + offsets[:, which], times[1] + offsets[:, -1:], which, first


@pytest.mark.parametrize(("pairs", "share"), [(16, 0.91), (96, 0.97), (400, 0.98)])
def test_standard_errors_are_neither_too_small_nor_large(pairs, share):
    references, contender, which, first = made(pairs, 0.05)
    found = random_effects.fit(references - contender, which, first)
    error = found.locations.mean(axis=1)
    told = np.sqrt(found.variances.sum(axis=1)) / 4
    assert error.std() / np.median(told) == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize("offset", [3e-4, 0.01])
def test_interval_is_as_wide_as_three_standard_errors(offset):
    references, contender, which, first = made(48, 0.05, tau=offset)
    found = random_effects.fit(references - contender, which, first)
    history = np.where(np.abs(np.log(random_effects.GRID / offset)) < 0.4, 0.0, -20.0)
    middle, low, high = random_effects.predict(found, np.tile(history, (RUNS, 1)))
    ideal = 3 * math.sqrt(1.1 * 0.05**2 / 48 + offset**2 * (1 + 1 / 4))
    assert 1.0 < np.median(high - low) / 2 / ideal < 2.3
    assert ((low > 0) | (high < 0)).mean() < 0.01
    assert np.abs(middle.mean()) < 0.002
    _, low, high = random_effects.predict(found, np.tile(history, (RUNS, 1)), overhead_error=0.5)
    assert np.median(high - low) / 2 == pytest.approx(3 * math.hypot(0.5, ideal / 3), rel=0.02)


@pytest.mark.parametrize(("sigma", "factor"), [(0.02, 8.0), (0.003, 1.06)])
def test_pairs_with_slowed_batch_are_set_aside(sigma, factor):
    references, contender, which, first = made(24, sigma)
    chance = np.random.default_rng(1)
    references += (chance.random(references.shape) < 0.15) * math.log(factor)
    contender += (chance.random(references.shape) < 0.15) * math.log(factor)
    kept, _ = random_effects.undisturbed(references, contender)
    assert 0.6 < kept.mean() < 0.88
    quiet = random_effects.fit(references - contender, which, first, kept=kept)
    loud = random_effects.fit(references - contender, which, first)
    assert np.median(quiet.variances) < 0.2 * np.median(loud.variances)


@pytest.mark.parametrize(("sigma", "factor"), [(0.02, 8.0), (0.003, 1.06)])
def test_slow_batches_of_the_contender_alone_count(sigma, factor):
    references, contender, _, _ = made(24, sigma)
    contender += (np.random.default_rng(1).random(contender.shape) < 0.4) * math.log(factor)
    assert random_effects.undisturbed(references, contender)[0].all(axis=1).mean() > 0.9


def test_identical_code_slowing_slow_batches_gains_little():
    references, contender, which, first = made(48, 0.05, tau=0.003)
    np.put_along_axis(contender, np.argsort(contender)[:, -5:], 9.0, axis=1)
    kept, _ = random_effects.undisturbed(references, contender)
    assert np.median(kept.sum(axis=1)) == 48 - 5
    found = random_effects.fit(references - contender, which, first, kept=kept)
    history = np.where(np.abs(np.log(random_effects.GRID / 0.003)) < 0.4, 0.0, -20.0)
    _, low, _ = random_effects.predict(found, np.tile(history, (RUNS, 1)))
    assert (low > 0).mean() < 0.002


@pytest.mark.parametrize("pairs", [24, 32, 64])
def test_identical_code_is_seldom_called_in_heavy_noise(pairs):
    references, contender, which, first = made(pairs, 1.2)
    kept, chance = random_effects.undisturbed(references, contender)
    assert kept.mean() < 0.3
    found = random_effects.fit(references - contender, which, first, kept=kept, chance=chance)
    _, low, high = random_effects.predict(found, random_effects.no_history(RUNS))
    assert (((low > 0) | (high < 0)) & (high - low < math.log(WIDEST))).mean() <= 0.004


@pytest.mark.parametrize(("sigma", "factor"), [(0.02, 8.0), (0.05, 3.0)])
def test_slow_batches_that_stand_apart_are_no_chance(sigma, factor):
    references, contender, _, _ = made(24, sigma)
    slow = np.random.default_rng(1).random((2, RUNS, 24)) < 0.15
    kept, chance = random_effects.undisturbed(*(np.stack([references, contender]) + slow * math.log(factor)))
    assert 0.6 < kept.mean() < 0.85
    assert (chance == 0).mean() > 0.99


def test_mostly_slow_kernel_is_not_called_faster():
    slow = [Pair(k % 4, 100.0, 90.0 if k % 3 else 400.0, k % 2 == 0) for k in range(24)]
    found = speedup(slow)[0]
    assert found is None or outcome(found) != "faster"


@pytest.mark.parametrize("count", [10, 16, 40])
def test_identical_code_is_seldom_called_by_ranks(count):
    chance = np.random.default_rng(2)
    ratios = np.exp(chance.normal(0, 2, (RUNS, count))) * chance.choice([-1, 1], (RUNS, count))
    _, low, high = random_effects.by_ranks(ratios)
    assert ((low > 0) | (high < 0)).mean() <= 0.004


def test_large_difference_is_told_despite_disturbed_batches():
    noise = np.random.default_rng(5).normal(0, 0.8, (40, 2))
    loaded = [
        Pair(k % 2, 800 * math.exp(a), 100 * math.exp(b), k % 3 == 0, turn=k // 2) for k, (a, b) in enumerate(noise)
    ]
    found = speedup(loaded)[0]
    assert outcome(found) == "faster"
    assert found.low < 8 < found.high


def pairs_with(offsets, contender=lambda k: 1.0, count=96, sigma=0.01, seed=3):
    chance = np.random.default_rng(seed)
    return [
        Pair(k % 4, 100 * math.exp(offsets[k % 4] + chance.normal(0, sigma)), 100 * contender(k), k % 2 == 0)
        for k in range(count)
    ]


def batches_of(pairs):
    return [(pair.reference, pair.baseline_us, pair.cores) for pair in pairs]


def test_references_that_differ_little_narrow_later_intervals():
    same, history = pairs_with([0.0] * 4), []
    widths = []
    for _ in range(5):
        found = speedup(same, history)[0]
        assert found is not None
        widths.append(half_width(found))
        history = learned(batches_of(same), history)
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.5 * widths[0]


@pytest.mark.parametrize(("apart", "narrows"), [(0.0, True), (0.05, False)])
def test_equal_references_beside_narrow_the_interval(apart, narrows):
    history = []
    for _ in range(8):
        history = learned(batches_of(pairs_with([0.0] * 4)), history)
    two_kernels = [msgspec.structs.replace(pair, reference=0) for pair in pairs_with([0.0] * 4)]
    batches = batches_of(pairs_with([0.0, apart] * 2, count=12))
    alone, beside = (half_width(speedup(two_kernels, history, beside=each)[0]) for each in ((), batches))
    assert (beside < 0.5 * alone) == narrows


def test_unusually_different_references_end_trust_in_history():
    history = []
    for _ in range(8):
        history = learned(batches_of(pairs_with([0.0] * 4)), history)
    far = pairs_with([0.0, 0.05, -0.05, 0.03])
    trusting, cautious = (speedup(far, mass)[0] for mass in (history, ()))
    assert half_width(trusting) > 0.8 * half_width(cautious)
    near = pairs_with([0.0] * 4)
    assert half_width(speedup(near, learned(batches_of(far), history))[0]) > 1.5 * half_width(speedup(near, history)[0])


def test_no_kernel_can_teach_the_history():
    honest, cheating = (
        pairs_with([0.0] * 4, contender=each) for each in (lambda k: 1.0, lambda k: 1.0 + 0.2 * (k % 4))
    )
    assert Clock("call", raw=cheating).learned_offsets() == Clock("call", raw=honest).learned_offsets() != {}


def test_duel_teaches_by_its_references_alone():
    beside = [(number, 9 * us, cores) for number, us, cores in batches_of(pairs_with([0.0] * 4, count=12))]
    slow = [msgspec.structs.replace(pair, reference=0, baseline_us=5e3) for pair in pairs_with([0.05] * 4)]
    duel = Clock("call", raw=slow, rival=True, beside=beside)
    assert duel.learned_offsets() == {"call medium": learned(beside)}
    assert Clock("call", raw=slow, rival=True).learned_offsets() == {}


def test_a_machine_that_slows_down_teaches_no_offsets():
    steady = pairs_with([0.0] * 4)
    slowing = [
        Pair(p.reference, p.baseline_us * (1 + k / 96), p.contender_us, p.baseline_first) for k, p in enumerate(steady)
    ]
    assert np.argmax(learned(batches_of(slowing))) <= np.argmax(learned(batches_of(steady))) + 6


def test_disturbed_batches_of_references_teach_no_offsets():
    history = []
    for seed in range(10):
        chance = np.random.default_rng(100 + seed)
        spikes = [
            msgspec.structs.replace(pair, baseline_us=pair.baseline_us * (1.07 if chance.random() < 0.2 else 1.0))
            for pair in pairs_with([0.0] * 4, count=48, sigma=0.003, seed=seed)
        ]
        history = learned(batches_of(spikes), history)
    assert random_effects.GRID[np.argmax(history)] < 0.001


@pytest.mark.parametrize("count", [0, 5, 7])
def test_few_batches_and_one_reference_teach_nothing(count):
    assert learned(batches_of(pairs_with([0.0] * 4, count=count))) == []
    assert learned([(0, 100.0, 0)] * 20) == []


def test_most_batches_define_what_stands_apart():
    times = np.array([[0.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0, slow] for slow in (45.0, 46.0)])
    assert random_effects._near(times)[:, -2:].tolist() == [[True, True], [True, False]]
    mostly_equal = np.array([[0.0] * 6 + [0.01, -0.01]])
    assert random_effects._scale(mostly_equal, mostly_equal < 1) == pytest.approx(1.2533 * 0.0025)


def test_shares_of_tiny_masses_add_up() -> None:
    assert random_effects._shares(np.log([[1.0, 3.0]]) - 2000.0).tolist() == [pytest.approx([0.25, 0.75])]
