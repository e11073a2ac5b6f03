"""Results are voided in the history and on the board: shown struck out with their note, and not counted."""

import pytest
from stored_runs import record
from textual.events import Key
from textual.widgets import DataTable, Input, Select

from arena.records.run_record import RunRecord
from arena.records.voids import read_voids
from screens.dialogs.runs import RunsDialog
from screens.dialogs.void import KERNEL, VoidDialog
from screens.kernel.history import HistoryScreen
from screens.picker.board import BoardDialog

pytestmark = pytest.mark.slow


def stored(player: str, speedup: float) -> RunRecord:
    """A finished run of the same code."""
    return record(f"run-of-{player}", player, speedup)


async def give_note(app, pilot, until, note: str) -> None:
    await until(pilot, lambda: isinstance(app.screen, VoidDialog) and app.screen.focused is not None)
    await pilot.press("enter")  # a void without a note is refused
    assert isinstance(app.screen, VoidDialog)
    app.screen.query_one("#note", Input).value = note


async def test_run_of_history_is_voided_and_counts_again(open_app, save_kernel, until, go_to, screen_text) -> None:
    async with open_app(problem="13") as (app, pilot):
        services = app.screen.session.services
        await save_kernel(pilot, "pass")
        await until(pilot, lambda: 13 in services.standings and services.standings[13].best)
        await pilot.press("f6")
        await until(pilot, lambda: isinstance(app.screen, HistoryScreen) and "▲ 1.50×" in screen_text(app))
        await pilot.press("x")
        await give_note(app, pilot, until, "reads [the] expected output")
        await go_to(pilot, ": reads [the] expected output", "enter")
        await until(pilot, lambda: services.standings[13].best is None and not services.standings[13].solved)
        struck = [
            segment for line in app.screen._compositor.render_strips() for segment in line if "1.50×" in segment.text
        ]
        assert struck
        assert all(segment.style.strike for segment in struck)
        await go_to(pilot, "This result is voided by", "x")
        await pilot.press("enter")
        await until(pilot, lambda: services.standings[13].best is not None)
        await until(pilot, lambda: "expected output" not in screen_text(app))


async def test_the_board_voids_a_kernel_of_any_player(open_app, until, go_to, screen_text, services) -> None:
    async with open_app() as (app, pilot):
        services.store.record(stored("you", 1.5))
        services.store.record(stored("model:opus", 9.5))
        await pilot.press("b")
        await until(pilot, lambda: isinstance(app.screen, BoardDialog) and "▲ 9.50×" in screen_text(app))
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, RunsDialog) and "model:opus" in screen_text(app))
        await until(pilot, lambda: len(app.screen.entries) == 2)
        at = [entry.player for entry in app.screen.entries].index("model:opus")
        await pilot.press(*["down"] * at, "x")
        await give_note(app, pilot, until, "copied")
        app.screen.query_one("#what", Select).value = KERNEL
        await go_to(pilot, ": copied", "enter")
        assert list(read_voids(services.paths.voids).kernels) == ["0" * 64]  # both results have this kernel
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, BoardDialog) and "▲ 9.50×" not in screen_text(app))
        await until(pilot, lambda: screen_text(app).count("✗ voided") == 2)
        assert app.screen.query_one("#board", DataTable).row_count == 1


async def test_enter_comes_after_text_typed_right_before_it(open_app, until) -> None:
    async with open_app() as (app, pilot):
        notes: list[object] = []
        app.push_screen(VoidDialog(stored("you", 1.5)), notes.append)
        await until(pilot, lambda: isinstance(app.focused, Input) and app.focused.id == "note")
        for character in "typed fast":
            app.post_message(Key("space" if character == " " else character, character))
        app.post_message(Key("enter", "\r"))
        await until(pilot, lambda: notes != [])
        assert notes == [(False, "typed fast")]
