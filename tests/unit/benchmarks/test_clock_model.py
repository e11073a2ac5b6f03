"""On simulated measurements, the estimator in use keeps its error rates; those without a spread of worlds do not."""

import math

import numpy as np
import pytest

from benchmarks.clock_model.estimators import USED
from benchmarks.clock_model.noise import MODELS, QUIET_DEVICE, VIRTUAL_CORES, make
from benchmarks.clock_model.table import MOST_WRONG, OFFSETS, differences, estimators
from benchmarks.clock_model.trial import Case, trial
from sandbox.protocol.events import Interval
from sandbox.timing.interval import detectable_percent

RUNS = 400
"""Simulated runs for each noise and offset: 1600 a row, 17600 in all."""


@pytest.mark.slow
def test_identical_code_is_called_in_at_most_one_run_of_a_hundred():
    rows = list(estimators(RUNS, (USED,)))
    assert len(rows) == len(MODELS)
    assert np.mean([row.wrong for row in rows]) <= 0.01
    for row in rows:
        # The limit for a single noise, plus three standard errors.
        allowed = MOST_WRONG + 3 * math.sqrt(MOST_WRONG / row.runs)
        assert row.wrong <= allowed, row
        assert row.covered >= 0.98 - 3 * math.sqrt(0.02 / row.runs), row
        assert not row.fault


def test_the_constant_margin_and_equal_worlds_do_not_keep_it():
    names = ("medians, margin (before)", "Huber")
    found = trial(Case(QUIET_DEVICE, 0.01, 3), RUNS, names)
    assert all(found[name].wrong > 0.10 for name in names)


@pytest.mark.slow
def test_real_differences_are_called():
    rows = {(row.noise, row.difference): row for row in differences(60)}
    assert all(row.wrong <= 0.02 for row in rows.values())
    assert rows[QUIET_DEVICE.name, 0.1].called >= 0.95
    assert rows[VIRTUAL_CORES.name, 0.2].called >= 0.9
    assert all(rows[noise.name, 0.5].called >= 0.95 for noise in MODELS)


def test_what_it_would_have_seen_it_sees():
    case = Case(VIRTUAL_CORES, OFFSETS["call"][1], 3)
    width = trial(case, RUNS, (USED,))[USED].half_width
    difference = detectable_percent(Interval(1.0, math.exp(-width), math.exp(width))) / 100
    seen = trial(Case(VIRTUAL_CORES, OFFSETS["call"][1], 3, faster=difference), RUNS, (USED,), seed=1)[USED]
    assert seen.called >= 0.9


@pytest.mark.parametrize("noise", MODELS, ids=lambda noise: noise.name)
def test_made_measurements_of_identical_code_favour_neither_side(noise):
    batches = make(noise, np.random.default_rng(3), 100, 80)
    ratios = np.median(batches.baseline - batches.contender, axis=1)
    assert abs(ratios.mean()) < 5 * ratios.std() / math.sqrt(len(ratios))
