"""Whole timing phases under the stopping rule, on noisy simulated worlds: identical code and real differences."""

from typing import NamedTuple

import pytest
from made_kernels import MadeKernel, noisy
from made_machine import MadeMachine

from sandbox.timing.interval import outcome
from sandbox.timing.rounds import Rounds
from sandbox.timing.stopping_rule import LONGEST


class Noise(NamedTuple):
    """Standard deviations of logarithms: of a batch's call and device time, and between worlds of the same code."""

    call: float
    device: float
    worlds: float


LEVELS = {"quiet": Noise(0.003, 0.0005, 0.001), "ordinary": Noise(0.03, 0.003, 0.004), "loud": Noise(0.12, 0.01, 0.008)}
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.further) for seed in (1, 2))]
OFFSETS = (0.3, -1.1, 0.7, 0.2)
"""Offsets of the reference worlds, in standard deviations."""


def settled(
    device: str, noise: Noise, factor: float, seed: int, budget_s: float = 2.5, fits: bool | None = None
) -> Rounds:
    """Measures rounds against a baseline that takes `factor` times as long as the kernel."""

    def kernel(scale: float, number: int, offsets: tuple[float, ...]) -> MadeKernel:
        return MadeKernel(
            noisy(300.0 * scale, noise.call, seed=4 * seed + number),
            noisy(250.0 * scale, noise.device, seed=4 * seed + number + 1),
            offsets=[offset * noise.worlds for offset in offsets],
        )

    machine = MadeMachine(device, kernel(1.0, 0, (-0.5,)), reference=kernel(factor, 2, OFFSETS))
    if fits is not None:
        machine.probing, machine.oracle.fits = True, lambda rank, order: fits or order.alone is not None
    rounds = machine.rounds(machine.run(budget_s=budget_s), references=2 if device == "made-cpu" else 4)
    started = machine.clock.monotonic()
    rounds.measure()
    assert machine.clock.monotonic() - started < budget_s * LONGEST + 1.0
    return rounds


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("device", ["made-cpu", "made-gpu"])
def test_identical_code_is_never_called_faster_or_slower(device: str, level: str, seed: int) -> None:
    rounds = settled(device, LEVELS[level], 1.0, seed)
    clocks = [interval for interval in rounds.estimate() if interval is not None]
    assert len(clocks) == (1 if device == "made-cpu" else 2)
    for interval in clocks:
        assert outcome(interval) in ("even", "too noisy")
        assert interval.low <= 1.0 <= interval.high
    if level == "quiet":
        assert all(outcome(interval) == "even" for interval in clocks)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("factor", [1.2, 1 / 1.2])
@pytest.mark.parametrize("level", ["quiet", "ordinary"])
@pytest.mark.parametrize("device", ["made-cpu", "made-gpu"])
def test_a_difference_of_a_fifth_is_called(device: str, level: str, factor: float, seed: int) -> None:
    rounds = settled(device, LEVELS[level], factor, seed)
    for interval in rounds.estimate():
        if interval is not None:
            assert outcome(interval) == ("faster" if factor > 1 else "slower")
            assert interval.median == pytest.approx(factor, rel=0.05)
            assert interval.low <= factor * 1.005
            assert interval.high >= factor * 0.995


def test_precise_device_time_leaves_rounds_to_calls() -> None:
    rounds = settled("made-gpu", Noise(0.05, 0.0005, 0.0005), 1.0, 0)
    assert 6 <= len(rounds.device.raw) < 0.35 * len(rounds.call.raw)


def test_unproven_device_time_alone_ends_nothing() -> None:
    rounds = settled("made-gpu", Noise(1.0, 0.003, 0.0), 1.2, 1, fits=False)
    assert any(rounds.estimate())  # device time is dropped at the end if no inputs ever fitted


def test_budget_too_short_for_enough_pairs_is_overdrawn() -> None:
    rounds = settled("made-cpu", LEVELS["quiet"], 1.0, 1, budget_s=0.0)
    assert rounds.turns.rounds >= 1
