"""The end of a duel, and a replay with keys of its own."""

from pathlib import Path

import pytest
from textual.widgets import Select

from arena.duel.events import KernelJudged, SideWrote, Submitted
from arena.duel.journal import read_duel, read_duel_header
from arena.duel.state import DuelState
from arena.setting_choice import Choice
from screens.duel import words
from screens.duel.live import GUEST, LiveDuelScreen
from screens.duel.replay import ReplayDuelScreen, SeekBar
from screens.widgets.key_line import KeyLine

pytestmark = pytest.mark.slow

RECORDING = Path(__file__).parent / "recordings" / "duel.jsonl"


async def opened(app, pilot, until, recording=RECORDING) -> ReplayDuelScreen:
    app.push_screen(ReplayDuelScreen(app, recording, read_duel_header(recording), pace=1))
    await until(pilot, lambda: isinstance(app.screen, ReplayDuelScreen) and app.screen.query("#seek"))
    return app.screen


@pytest.mark.parametrize("columns", [60, 100, 160])
async def test_end_shows_winner_interval_and_both_kernels(open_app, until, screen_text, columns) -> None:
    async with open_app(size=(columns, 40)) as (app, pilot):
        screen = await opened(app, pilot, until)
        # A text that was begun after the last kernel and never finished.
        screen._events.insert(-1, SideWrote(at=screen._length, side="left", attempt=12, text="half a line"))
        await pilot.press("end")
        await until(pilot, lambda: screen.state.ended is not None)
        await until(pilot, lambda: "a draw: too noisy to tell them apart" in screen_text(app))
        if columns >= 100:
            await until(pilot, lambda: "model:local ─ kernel 2" in screen_text(app))
        speed = screen.state.ended.speedup
        await until(pilot, lambda: screen_text(app).count(words.figures.speedup_words(speed)) == 1)
        await pilot.pause(0.3)
        text = screen_text(app)
        assert "writing" not in text
        assert "half a line" not in text
        assert screen.finals["left"].text == screen.state.left.best.kernel.source
        line = int(columns < 100)  # on a line of its own, without the names of the clocks
        await until(pilot, lambda: screen_text(app).splitlines()[line].strip().endswith("house ▲ 13.5×"))


async def test_missing_journal_is_said_and_changes_nothing(open_app, until, tmp_path) -> None:
    """The journal was on the board and was deleted before it was opened."""
    async with open_app() as (app, pilot):
        gone = tmp_path / "gone.jsonl"
        app.push_screen(ReplayDuelScreen(app, gone, read_duel_header(RECORDING)))
        await until(pilot, lambda: any("No such file" in note.message for note in app._notifications))
        await until(pilot, lambda: app.screen is app.picker)


async def test_a_replay_steps_seeks_and_goes_back(open_app, until, go_to, screen_text) -> None:
    async with open_app() as (app, pilot):
        screen = await opened(app, pilot, until)
        events = list(read_duel(RECORDING))
        await pilot.press("end")
        await until(pilot, lambda: screen.state.ended is not None and "^r share" in screen_text(app).splitlines()[-1])
        whole = DuelState(screen.state.header)
        for event in events:
            whole.apply(event)
        assert screen.state == whole
        judged = [event.at for event in events if isinstance(event, KernelJudged)]
        while screen.now > judged[0]:
            before = screen.now
            await pilot.press("left")
            assert screen.now < before
        assert screen.now == judged[0]
        assert screen.state.final is None  # later events are undone
        await pilot.press("left")
        assert screen.now in [event.at for event in events if isinstance(event, Submitted)]
        screen.play_to(screen._length)
        screen.query_one(KeyLine)._read()  # as when the focus moves
        await pilot.press("home")
        await until(pilot, lambda: "share" not in screen_text(app).splitlines()[-1])
        assert screen.now == 0.0
        bar = screen.query_one(SeekBar)
        await pilot.click(SeekBar, offset=(bar.size.width // 2, 0))
        assert 0.3 * screen._length < screen.now < 0.7 * screen._length
        await pilot.resize_terminal(60, 20)
        for key, there, gone in (("left", "→ next", "share"), ("end", "^r share", "→ next")):
            await pilot.press(key)
            await until(pilot, lambda there=there: there in screen_text(app).splitlines()[-1])
            keys = screen_text(app).splitlines()[-1]
            assert "pause" in keys
            assert "submit" not in keys
            assert gone not in keys
        await until(pilot, lambda: f"kernel {words.final_kernel(screen.state, 'left').number} " in screen_text(app))
        await until(pilot, lambda: screen.finals["left"].size.height > 6)
        await go_to(pilot, app.picker, "escape")


async def test_duel_from_kernel_returns_with_all_typed_text(open_app, until, go_to) -> None:
    async with open_app(problem="13") as (app, pilot):
        kernel = app.screen
        path = app.services.workspace.kernel_path(kernel.problem)
        app.services.workspace.save(path, "pass")
        app.services.workspace.save(app.services.workspace.kernel_path(kernel.problem, GUEST), "pass")
        await until(pilot, lambda: kernel.editor.text == "pass")
        await until(pilot, lambda: kernel.session.state.result is not None)
        judged = kernel.session.state.run_id
        kernel.session.choice = Choice(preset="paper")
        await go_to(pilot, "#player-right", "ctrl+end", "enter", "#", "f8")
        app.screen.query_one("#player-right", Select).value = GUEST
        await pilot.pause()
        await go_to(pilot, LiveDuelScreen, "enter")
        duel = app.screen
        assert duel.state.header.setting.preset == "paper"
        editor = duel.panes["left"]
        await until(pilot, lambda: editor.text == "pass\n#" and editor.dirty)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: bool(duel.state.left.last and duel.state.left.last.judged))
        await pilot.press("ctrl+end", "y")
        await go_to(pilot, kernel, "escape", "escape")
        await until(pilot, lambda: kernel.editor.text == "pass\n#y")
        assert path.read_text() == "pass\n#"
        session = kernel.session
        assert session.state.run_id == judged or session.from_journal  # the duel's runs are shown as earlier ones alone
        await pilot.press("ctrl+z")
        await until(pilot, lambda: kernel.editor.text == "pass\n#" and not kernel.editor.dirty)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: session.state.run_id != judged and not session.from_journal)
