"""Random keys, pastes and sizes in the real app."""

import asyncio

import pytest
from textual.app import App
from textual.pilot import Pilot

from benchmarks.app.inspected import UNASKED, report, run
from benchmarks.monkey import OPENINGS
from screens.terminal_app import TerminalApp


@pytest.mark.long
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("screen", OPENINGS)
def test_ten_minutes_of_random_keys(run_benchmark, screen: str) -> None:
    played = run_benchmark("monkey", "--screen", screen, "--minutes", "10", "--shorten", "60", timeout=900)
    assert (played.returncode, "went on" in played.stdout) == (0, True), played.stdout


def test_an_end_without_being_asked_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def cancel(pilot: Pilot[None]) -> None:
        pilot.app.call_later(lambda: asyncio.current_task().cancel())  # type: ignore[union-attr]

    monkeypatch.setattr(App, "exit", App.exit)
    with pytest.raises(SystemExit) as end:
        run(lambda: App[None]().run(headless=True, auto_pilot=cancel))
    assert end.value.code == UNASKED


async def test_what_a_frozen_app_waits_for_is_written() -> None:
    async with TerminalApp().run_test():
        assert "_in_preparation = set()" in report(None)
