"""The duel screen: submissions, clock, final, sharing, board and replay. The referee does what kernels say."""

import asyncio

import pytest
from textual.color import Color
from textual.events import Key
from textual.widgets import Input, OptionList, Select
from waiting import comes_true

from arena.duel.events import SideWrote, Submitted
from arena.duel.journal import read_duels
from arena.workspace.kernels import content_hash
from screens.app_protocol import DuelPlan
from screens.duel.board import DuelBoard
from screens.duel.live import GUEST, YOU, LiveDuelScreen, opponents
from screens.duel.replay import ReplayDuelScreen
from screens.duel.setup import DuelSetup
from screens.widgets.line_chart import LineChart

pytestmark = pytest.mark.slow


def prepare(app, **kernels: str):
    """Writes kernels to the workspace. The scripted referee does what they say."""
    problem = app.services.catalogue.find("13")
    for player, source in kernels.items():
        app.services.workspace.save(app.services.workspace.kernel_path(problem, player), source)
    return problem


async def started(app, pilot, until, problem) -> LiveDuelScreen:
    app.play_duel(problem, DuelPlan(YOU, GUEST, 10.0))
    await comes_true(lambda: isinstance(app.screen, LiveDuelScreen))
    screen = app.screen
    app.post_message(Key("ctrl+s", None))  # the file's text is submitted only on request, even before it is shown
    await until(pilot, lambda: screen.state.left.last.judged and screen.state.right.last.judged)
    assert screen.state.left.last.kernel.source
    return screen


async def played(app, pilot, until):
    """The screen of a duel after its final. Both players agreed to end it."""
    screen = await started(app, pilot, until, prepare(app, you="pass", guest="pass"))
    screen.match.agree("left")
    screen.match.agree("right")
    await until(pilot, lambda: screen.state.stage == "ended")
    return screen


async def test_duel_from_picker_to_its_card_and_replay(open_app, until, go_to, screen_text, paths) -> None:
    async with open_app() as (app, pilot):
        prepare(app, you="wrong", guest="pass")
        app.picker.table.move_cursor(row=2)
        await go_to(pilot, DuelSetup, "d")
        assert "13" in str(app.screen.query_one(".dialog").border_title)
        for field in app.screen.query("Input, Button, SelectCurrent"):
            assert field.styles.background == Color.parse(app.current_theme.panel)  # it differs from the dialog's
        app.screen.query_one("#player-right", Select).value = GUEST
        app.screen.query_one("#minutes", Input).value = "5"
        await pilot.pause()
        app.screen.query_one("#start").press()
        await until(pilot, lambda: isinstance(app.screen, LiveDuelScreen))
        screen = app.screen
        await until(pilot, lambda: bool(screen.state.right.last))
        assert not screen.state.left.attempts  # the workspace's kernel is submitted only on request
        screen.action_submit()
        await until(pilot, lambda: bool(screen.state.left.last))
        screen.action_submit()  # the file has not changed and has no verdict yet
        await until(pilot, lambda: any("Already submitted" in said.message for said in app._notifications))
        await until(pilot, lambda: screen.state.left.last.judged and screen.state.right.last.judged)
        await until(pilot, lambda: all(verdict in screen_text(app) for verdict in ("✗ WRONG", "✓ PASS")))
        await until(pilot, lambda: "left" in screen_text(app).splitlines()[-2])

        editor = screen.panes["left"]
        editor.replace("pass", editor.document.start, editor.document.end)
        await pilot.pause()
        await pilot.press("ctrl+s")
        await until(pilot, lambda: len(screen.state.left.attempts) == 2 and screen.state.left.last.judged)
        await pilot.press("ctrl+g", "ctrl+g")
        await until(pilot, lambda: screen.state.left.left == "agreed" and editor.read_only)
        await pilot.press("x")
        assert (screen.state.stage, editor.text) == ("playing", "pass")
        screen.match.agree("right")
        shown = ("you wins: faster in the final", "esc leave")
        await until(pilot, lambda: screen.state.stage == "ended" and all(said in screen_text(app) for said in shown))
        await pilot.press("f3")
        await until(pilot, lambda: any("Both kernels are shown" in said.message for said in app._notifications))

        await pilot.press("ctrl+r")
        await until(pilot, (paths.duels / f"{screen.state.header.duel_id}.svg").exists)
        await go_to(pilot, app.picker, "escape")

        await go_to(pilot, DuelBoard, "D")
        board = app.screen
        await until(pilot, lambda: board.query_one("#duels", OptionList).option_count == 1)
        await until(pilot, lambda: " enter replays · esc back" in screen_text(app))  # one duel has no ratings
        await go_to(pilot, ReplayDuelScreen, "enter")
        replay = app.screen
        paces = [await pilot.press(key) or replay.pace for key in (*["f2"] * 3, *["f3"] * 5)]
        assert paces == [2, 1, 1, 2, 5, 10, 20, 20]
        await until(pilot, lambda: replay.state.stage == "ended")
        assert replay.state == screen.state
        await go_to(pilot, DuelBoard, "q")


async def test_a_save_during_a_judgement_is_submitted_once(open_app, until, go_to) -> None:
    async with open_app() as (app, pilot):
        screen = await started(app, pilot, until, prepare(app, you="wrong", guest="pass"))
        editor = screen.panes["left"]
        screen.action_pause()  # the next evaluation does not start
        for text in ("pass\n# first", "pass\n# second"):
            editor.replace(text, editor.document.start, editor.document.end)
            screen.action_submit()  # before the editor's message of the change
            await until(pilot, lambda: not editor.dirty and len(screen.state.left.attempts) == 2)
        await go_to(pilot, "when your last submission has", "ctrl+s")
        screen.action_pause()
        await until(pilot, lambda: len(screen.state.left.attempts) == 3 and screen.state.left.last.judged)
        screen.action_pause()
        for text in ("pass\n# third", "pass\n# fourth"):
            editor.replace(text, editor.document.start, editor.document.end)
            await pilot.press("ctrl+s")
            await until(pilot, lambda: not editor.dirty and len(screen.state.left.attempts) == 4)
        editor.insert("#")
        screen.match.agree("right")
        await until(pilot, lambda: screen.state.right.left)
        await pilot.press("ctrl+g", "ctrl+s", "ctrl+g")  # once closes nothing; the file is still being written
        await until(pilot, lambda: screen.state.left.left == "agreed")
        assert any("Both players are done" in note.message for note in app._notifications)
        sources = ["pass\n# first", "pass\n# second", "pass\n# third", editor.text]
        assert [attempt.kernel.source for attempt in screen.state.left.attempts[1:]] == sources
        assert sources[-1].count("#") == 2


async def test_the_editor_shows_what_another_program_saves(open_app, until, go_to) -> None:
    async with open_app() as (app, pilot):
        screen = await started(app, pilot, until, prepare(app, you="wrong", guest="pass"))
        editor, path = screen.panes["left"], screen.edited_path
        path.write_text("pass\n# by vim")
        await until(pilot, lambda: editor.text == "pass\n# by vim" and not editor.dirty)
        await until(pilot, lambda: len(screen.state.left.attempts) == 2)
        await go_to(pilot, "Already submitted", "ctrl+s")
        editor.insert("x", (0, 0))
        path.write_text("pass\n# by vim again")
        await until(pilot, lambda: editor.text == "pass\n# by vim again" and len(screen.state.left.attempts) == 3)
        told = "ctrl+z brings your unsaved text back"
        await until(pilot, lambda: any(told in note.message for note in app._notifications))
        editor.undo()
        assert editor.text == "xpass\n# by vim"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: len(screen.state.left.attempts) == 4)
        assert screen.state.left.last.kernel.source == path.read_text() == "xpass\n# by vim"


async def test_pause_stops_the_clock_and_giving_up_loses(
    open_app, until, go_to, screen_text, paths, monkeypatch
) -> None:
    monkeypatch.setattr("screens.duel._LEAST_SECONDS", 300.0)  # longer than the test takes on a busy machine
    async with open_app() as (app, pilot):
        screen = await started(app, pilot, until, prepare(app, you="pass", guest="pass"))
        await pilot.resize_terminal(60, 24)
        await until(pilot, lambda: "^g final" in screen_text(app))
        await go_to(pilot, "paused", "ctrl+b")
        before = screen.state.remaining(screen.now)
        await pilot.pause(0.3)
        assert abs(screen.state.remaining(screen.now) - before) < 0.01
        await pilot.resize_terminal(160, 45)
        with monkeypatch.context() as patched:
            patched.setattr(LiveDuelScreen, "now", screen.now + 400)  # a longer pause
            screen.draw()
            assert screen.query_one(LineChart)._until == 300.0  # the race stands, too
        await pilot.press("ctrl+b")
        await until(pilot, lambda: screen.state.stage == "playing")
        await pilot.press("shift+f7")
        assert not screen.state.left.left  # near F7: one wrong press must not lose a duel
        assert any("shift+F7 again gives up" in told.message for told in app._notifications)
        await pilot.press("shift+f7")
        screen.match.agree("right")
        await until(pilot, lambda: screen.state.stage == "ended")
        assert read_duels(paths.duels)[0][0].ended.winner == "right"
        # The race is drawn until the end of the duel, not until the limit of ten minutes.
        await until(pilot, lambda: " wins" in screen_text(app) and "5:00" in screen_text(app))
        assert "10:00" not in screen_text(app)


async def test_quitting_and_leaving_a_duel_take_two_presses(open_app, until, go_to, paths) -> None:
    async with open_app() as (app, pilot):
        problem, workspace = prepare(app, you="pass", guest="pass"), app.services.workspace
        path = workspace.kernel_path(problem)
        workspace.save_draft(path, "half a thought")  # of the kernel screen
        screen = await started(app, pilot, until, problem)
        ends = []
        app.exit = lambda message=None: ends.append(message)
        await pilot.press("ctrl+q")
        assert ends == []
        assert any("ctrl+q again quits: the duel is not counted" in told.message for told in app._notifications)
        await pilot.press("ctrl+q")
        assert ends == [None]
        assert screen.state.stage == "playing"
        screen.panes["left"].insert("# not saved\n")
        await pilot.press("escape")
        assert app.screen is screen
        await go_to(pilot, app.picker, "escape")
        await until(pilot, lambda: screen.state.stage == "abandoned")
        assert read_duels(paths.duels)[0] == []  # it counts for nobody
        await until(pilot, lambda: "# not saved" in workspace.draft(path))
        await until(pilot, lambda: workspace.kernel(content_hash("half a thought")))


async def test_two_presses_start_one_rematch(open_app, until, paths) -> None:
    async with open_app() as (app, pilot):
        first = await played(app, pilot, until)
        for _ in range(4):
            app.post_message(Key("f8", None))
            await asyncio.sleep(0.005)
        await until(pilot, lambda: app.screen is not first and app.screen.state.right.last)
        first.action_rematch()  # a late key press
        await pilot.pause(0.3)
        assert app.is_running
        assert (app.screen.state.stage, len(list(paths.duels.glob("*.jsonl")))) == ("playing", 2)


async def test_written_text_appears_until_kernel_replaces_it(open_app, until, screen_text) -> None:
    async with open_app() as (app, pilot):
        screen = await started(app, pilot, until, prepare(app, you="pass", guest="pass"))
        for number in range(300):
            screen.match.tell(SideWrote(at=screen.now, side="right", attempt=2, text=f"x{number} = {number}\n"))
            await asyncio.sleep(0.001)
        await until(pilot, lambda: "Hidden until the final" in screen_text(app))
        await pilot.pause(0.3)
        assert "x299 = 299" not in screen_text(app)
        await pilot.press("f3")
        assert screen.hidden == "right"
        await pilot.press("f3")
        await until(pilot, lambda: all(said in screen_text(app) for said in ("x299 = 299", "kernel 2, writing")))
        assert "x0 = 0" not in screen_text(app)
        handed = Submitted(at=screen.now, side="right", attempt=2, sha256="", source="y = 1\n")
        screen.match.tell(handed)
        await until(pilot, lambda: "y = 1" in screen_text(app))


def test_opponents_are_those_that_there_are(services) -> None:
    catalogue = services.read_catalogue()
    writers = ["agent:m", "agent:a", "model:m"]
    assert opponents(catalogue.find("13"), ["m"], ["a"], "cpu") == ["house", "baseline", *writers, "guest"]
    on_gpus = opponents(catalogue.find("13"), [], [], "cuda")
    assert on_gpus == ["house", "baseline", "baseline-graph", "guest"]
