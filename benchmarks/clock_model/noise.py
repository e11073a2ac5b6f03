"""Simulated measurements: models of the noise of a pair of batches, calibrated by real batches of identical code.

The real batches are from 2 H200.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sandbox.machine.placement import core_in_turn

Floats = NDArray[np.floating[Any]]

REAL = Path(__file__).with_name("real_batches.json")
"""Batches of identical code in worlds on equal cores: microseconds per call, in the order they ran."""
PIECE = 6
"""Real pairs are taken in pieces of this many neighbours, which keeps their correlation."""
STEPS = 4
"""Parts of a batch in which a core has one speed."""


@dataclass(frozen=True)
class Noise:
    """One kind of machine and clock. Spreads are standard deviations of logarithms."""

    name: str
    clock: str
    pairs_per_s: float
    jitter: float = 0.0
    """Spread of each batch by itself. One batch in twenty has three times as much."""
    bursts: float = 0.0
    """Share of the batches, on either side, that take longer by up to half and more."""
    burst: float = 0.3
    """Mean share by which they take longer."""
    slow_cores: float = 0.0
    """Log ratio of a slow core's speed to a quick one's; cores change between the two."""
    dwell: tuple[float, float] = (0.02, 1.0)
    """Shortest and longest mean time that a core stays quick or slow, in seconds; each core has its own."""
    ranks: int = 2
    cores: int = 2
    """Cores of a rank's share; pairs rotate over them."""
    drift: float = 0.0
    """Spread of the change in the machine's speed between neighbouring batches, as a random walk."""
    correlated: float = 0.0
    """Spread of an autoregressive part that only the contender has, with a correlation of 0.5 between neighbouring pairs."""
    contention: float = 0.0
    """Share of batches that take 3 to 30 times as long, because other programs have the cores."""
    second: float = 0.0
    """Log ratio by which the batch that runs second takes longer."""
    real: str = ""
    """The experiment whose real batches are used instead; empty: none."""


VIRTUAL_CORES = Noise(
    "call, virtual cores", "call", 20, jitter=0.05, bursts=0.02, slow_cores=0.6, drift=0.02, second=0.02
)
QUIET_DEVICE = Noise("device, quiet", "device", 20, jitter=0.0015, bursts=0.005, burst=0.02, second=0.0005)
QUIET = Noise("call, quiet", "call", 25, jitter=0.02, bursts=0.01, drift=0.005, second=0.01)
CONTENTION = Noise("call, contention", "call", 20, jitter=0.035, contention=0.25)
HEAVY = tuple(Noise(f"call, pairs +-{jitter * 140:.0f} %", "call", 20, jitter=jitter) for jitter in (0.3, 0.5, 0.8))
"""Machines so busy that hardly two batches take the same time."""
MADE = (
    QUIET,
    CONTENTION,
    Noise("call, spinner", "call", 20, jitter=0.03, bursts=0.03, slow_cores=0.15, drift=0.01, second=0.01),
    VIRTUAL_CORES,
    Noise("call, two speeds", "call", 20, jitter=0.05, slow_cores=0.5, dwell=(0.05, 5.0), ranks=1, cores=4),
    Noise("call, few pairs", "call", 10, jitter=0.06, bursts=0.1, slow_cores=0.4, second=0.02, correlated=0.03),
    Noise("call, correlated", "call", 20, jitter=0.03, bursts=0.05, drift=0.01, correlated=0.05),
    Noise("call, loaded", "call", 15, jitter=0.15, bursts=0.2, burst=0.6, drift=0.05, correlated=0.05),
    *HEAVY,
    QUIET_DEVICE,
    Noise("device, rough", "device", 15, jitter=0.008, bursts=0.02, burst=0.1, correlated=0.002, second=0.003),
)
RESAMPLED = (
    Noise("real: short batches", "call", 20, real="E1"),
    Noise("real: 17 to 29 ms", "call", 20, real="E6"),
    Noise("real: spinner", "call", 20, real="E7"),
)
MODELS = (*MADE, *RESAMPLED)


@dataclass(frozen=True)
class MadeBatches:
    """Simulated measurements of identical code, [runs, pairs] each."""

    baseline: Floats
    """Logarithm of the reference worlds' time."""
    contender: Floats
    first: NDArray[np.bool_]
    """Whether the reference world ran first."""


def make(noise: Noise, random: np.random.Generator, runs: int, pairs: int) -> MadeBatches:
    """Simulates batches of identical code in worlds without offsets."""
    first = random.random((runs, pairs)) < 0.5
    if noise.real:
        early, late = _real(noise.real, random, runs, pairs)
    else:
        turns = _turns(noise, random, runs, pairs)
        early, late = turns[:, :, 0], turns[:, :, 1] + noise.second
    contender = np.where(first, late, early)
    if noise.correlated:
        shock = random.normal(0, noise.correlated, (runs, pairs)) * np.sqrt(1 - 0.5**2)
        state = random.normal(0, noise.correlated, runs)
        for k in range(pairs):
            state = 0.5 * state + shock[:, k]
            contender[:, k] += state
    return MadeBatches(np.where(first, early, late), contender, first)


def _turns(noise: Noise, random: np.random.Generator, runs: int, pairs: int) -> Floats:
    """[runs, pairs, 2] log time of the batch that runs first and of the one that runs second."""
    shape = (runs, pairs, 2)
    spread = np.where(random.random(shape) < 0.05, 3.0, 1.0) * noise.jitter
    times = random.normal(0, 1, shape) * spread
    times += (random.random(shape) < noise.bursts) * np.log1p(random.exponential(noise.burst, shape))
    if noise.contention:
        times += (random.random(shape) < noise.contention) * random.uniform(math.log(3), math.log(30), shape)
    if noise.drift:
        times += np.cumsum(random.normal(0, noise.drift, (runs, pairs * 2)), axis=1).reshape(shape)
    if noise.slow_cores:
        times += np.log(_core_speeds(noise, random, runs, pairs))
    times[:, 0] += 0.2  # the start of a run is slow for both sides
    times[:, 1] += 0.05
    return times


def _core_speeds(noise: Noise, random: np.random.Generator, runs: int, pairs: int) -> Floats:
    """[runs, pairs, 2] time of a batch on the slowest rank, relative to quick cores.

    Every core is quick or slow for a while, independently of others. On a virtual machine that depends on whether
    another guest uses the other hyperthread. Both batches of a pair use the same core of each rank.
    """
    cores = (runs, noise.ranks, noise.cores)
    step = 1 / (noise.pairs_per_s * (2 * STEPS + 2))  # seconds; a pair has two steps of rest
    lows, highs = np.log(noise.dwell)
    leave = [step / np.exp(random.uniform(lows, highs, cores)) for _ in range(2)]  # quick, slow
    slow = random.random(cores) < leave[0] / (leave[0] + leave[1])
    factor = np.exp(random.normal(noise.slow_cores, noise.slow_cores / 4, cores))
    times = np.empty((runs, pairs, 2))
    for pair in range(pairs):
        mine = core_in_turn(range(noise.cores), pair)
        for turn in range(2):
            spent = np.zeros((runs, noise.ranks))
            for _ in range(STEPS):
                slow ^= random.random(cores) < np.where(slow, leave[1], leave[0])
                spent += np.where(slow, factor, 1.0)[:, :, mine]
            times[:, pair, turn] = spent.max(axis=1) / STEPS
            slow ^= random.random(cores) < np.where(slow, leave[1], leave[0])
    return times


def _real(experiment: str, random: np.random.Generator, runs: int, pairs: int) -> tuple[Floats, Floats]:
    """Log times of neighbouring real batches (earlier, later), [runs, pairs] each; a run takes one problem's."""
    series = [np.log(batches) for name, batches in json.loads(REAL.read_text()).items() if name.startswith(experiment)]
    early, late = np.empty((runs, pairs)), np.empty((runs, pairs))
    for run in range(runs):
        found = series[random.integers(len(series))]
        starts = random.integers(0, len(found) - PIECE, pairs // PIECE + 1)
        picked = (starts[:, None] + np.arange(PIECE)).ravel()[:pairs]
        early[run], late[run] = found[picked, 0], found[picked, 1]
    return early, late
