"""Deadlines: longer on a slow machine, shorter in tests, but long enough for a busy machine."""

import pytest

from sandbox.worlds.deadlines import LONGEST, SHORTEST, SHORTEST_BATCH, TimeLimits, deadline_scale


@pytest.mark.parametrize(
    ("text", "scale"),
    [("1", 1.0), ("4", 4.0), ("0.3", 0.3), ("0", SHORTEST), ("1e9", LONGEST), ("nan", 1.0), ("fast", 1.0)],
)
def test_the_scale_is_bounded(monkeypatch: pytest.MonkeyPatch, text: str, scale: float) -> None:
    monkeypatch.setenv("PKB_DEADLINE_SCALE", text)
    assert deadline_scale() == scale


def test_every_deadline_of_a_kernel_is_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = TimeLimits.for_baseline(1e-4, 10)
    assert usual == TimeLimits()
    monkeypatch.setenv("PKB_DEADLINE_SCALE", "4")
    assert TimeLimits.for_baseline(1e-4, 10) == TimeLimits(load=80.0, first_call=40.0, batch=8.0, time=120.0, own=240.0)
    monkeypatch.setenv("PKB_DEADLINE_SCALE", "0.5")
    assert TimeLimits.for_baseline(1e-4, 10) == TimeLimits(load=10.0, first_call=5.0, batch=1.0)


def test_short_deadline_still_fits_baseline_and_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PKB_DEADLINE_SCALE", "0.05")
    assert TimeLimits.for_baseline(1e-4, 10).batch == SHORTEST_BATCH
    slow = TimeLimits.for_baseline(0.5, 3)
    assert (slow.first_call, slow.batch, slow.time, slow.own) == (50.0, 30.0, 600.0, 200.0)
