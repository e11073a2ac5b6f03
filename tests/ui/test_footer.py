"""The line of keys shows what can be done now."""

import pytest

from arena.duel.events import FinalBegan
from screens.app_protocol import DuelPlan
from screens.duel.live import GUEST, YOU, LiveDuelScreen
from screens.sweep import SweepScreen

pytestmark = pytest.mark.slow


def keys(text: str) -> str:
    """The last line; empty before the first paint."""
    return "".join(text.splitlines()[-1:])


async def test_a_duel_shows_the_keys_of_its_stage(open_app, until, screen_text) -> None:
    async with open_app() as (app, pilot):
        problem = app.services.catalogue.find("13")
        for player in (YOU, GUEST):
            app.services.workspace.save(app.services.workspace.kernel_path(problem, player), "pass")
        app.play_duel(problem, DuelPlan(YOU, GUEST, 10.0))
        await until(pilot, lambda: isinstance(app.screen, LiveDuelScreen) and "submit" in keys(screen_text(app)))
        screen = app.screen
        await until(pilot, lambda: "give up" in keys(screen_text(app)))
        assert "rematch" not in keys(screen_text(app))
        screen.action_submit()
        await until(
            pilot, lambda: all(side.last and side.last.judged for side in (screen.state.left, screen.state.right))
        )
        await pilot.press("shift+f7", "shift+f7")
        screen.match.agree("right")
        await until(pilot, lambda: screen.state.stage == "ended")
        await until(pilot, lambda: "rematch" in keys(screen_text(app)) and "share" in keys(screen_text(app)))
        for gone in ("submit", "pause", "final", "give up"):
            assert gone not in keys(screen_text(app))


async def test_final_of_duel_shows_no_keys_of_players(open_app, until, screen_text) -> None:
    async with open_app() as (app, pilot):
        problem = app.services.catalogue.find("13")
        app.play_duel(problem, DuelPlan(YOU, GUEST, 10.0))
        await until(pilot, lambda: isinstance(app.screen, LiveDuelScreen) and "submit" in keys(screen_text(app)))
        screen = app.screen
        screen.match.tell(FinalBegan(at=1.0, left=1, right=1, run_id=""))
        await until(pilot, lambda: "give up" not in keys(screen_text(app)))
        for gone in ("submit", "pause", "final", "rematch"):
            assert gone not in keys(screen_text(app))
        for key in ("ctrl+g", "shift+f7"):
            app.clear_notifications()
            await pilot.press(key)
            assert [note.message for note in app._notifications] == ["The final is running already"]


@pytest.mark.further
@pytest.mark.parametrize("columns", [60, 160])
async def test_without_a_sweep_no_key_promises_one(open_app, until, screen_text, columns) -> None:
    async with open_app(size=(columns, 24)) as (app, pilot):
        await pilot.press("c")
        await until(pilot, lambda: isinstance(app.screen, SweepScreen) and "No sweep yet" in screen_text(app))
        await until(pilot, lambda: "filter" not in keys(screen_text(app)))
        await until(pilot, lambda: "leave" in keys(screen_text(app)))
        assert "next" not in keys(screen_text(app))
        assert "panes" not in keys(screen_text(app))
        assert "No sweep yet" in "".join(screen_text(app).splitlines()[:4])
