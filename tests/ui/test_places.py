"""Jump letters and full-screen panes on screens other than the kernel screen; no column is left empty."""

import pytest
from textual.widgets import Input, OptionList

from screens.dialogs.help import HelpScreen
from screens.dialogs.machine import MachineDialog
from screens.dialogs.settings import SettingsScreen
from screens.pane_jump import PaneJump, Stop, letter_rows

pytestmark = pytest.mark.slow


async def jump(app, pilot, until, letter: str) -> None:
    await pilot.press("ctrl+o")
    await until(pilot, lambda: isinstance(app.screen, PaneJump) and app.screen.query("#letters"))
    await pilot.press(letter)
    await until(pilot, lambda: not isinstance(app.screen, PaneJump))


async def test_letters_and_zoom_on_the_start_screen(open_app, until, go_to, screen_text) -> None:
    async with open_app() as (app, pilot):
        below = "Every rank holds a tensor"
        for theme in ("light", "contrast", "ansi", "dark"):
            app.theme = theme
            await until(pilot, lambda: below in screen_text(app) and " c Parallelism" not in screen_text(app))
            await pilot.press("ctrl+o")
            await until(pilot, lambda: " c Parallelism" in screen_text(app) and " p Problems" in screen_text(app))
            await until(pilot, lambda: below in screen_text(app))
            await pilot.press("escape")
        await jump(app, pilot, until, "c")
        await until(pilot, lambda: isinstance(app.focused, OptionList))
        await pilot.press("ctrl+t")
        await until(pilot, lambda: app.screen.query_one("#category-pane").region.width == 160)
        assert "Problems" not in screen_text(app)
        await jump(app, pilot, until, "p")  # the next pane fills the screen, too
        await until(pilot, lambda: app.picker.table.has_focus and app.query_one("#problem-pane").region.width == 160)
        await go_to(pilot, "Parallelism", "escape")
        await go_to(pilot, PaneJump, "ctrl+o")
        await pilot.resize_terminal(100, 34)  # the panes are elsewhere
        await until(pilot, lambda: app.screen is app.picker)
        await go_to(pilot, PaneJump, "ctrl+o")
        await go_to(pilot, HelpScreen, "f1")


def test_no_letter_is_apart_from_its_title() -> None:
    stops = [Stop(word[0], word, word) for word in ("kernel", "baseline", "diff", "correctness", "log")]
    for width in range(14, 100):
        rows = [row.plain for row in letter_rows(stops, "ctrl+o", width)]
        assert all(len(row) <= max(width, len("c correctness")) for row in rows)
        said = [entry for row in rows for entry in row.split("  ")]
        assert said == [*(f"{stop.letter} {stop.title}" for stop in stops), "ctrl+o next", "esc stays"]


async def test_a_dialog_has_letters_and_keeps_changes(open_app, until, go_to) -> None:
    async with open_app() as (app, pilot):
        await pilot.press("f9")
        await until(pilot, lambda: isinstance(app.screen, SettingsScreen) and app.focused is not None)
        dialog = app.screen
        dialog.query_one(".dialog").mount(Input())  # a field that has no place yet
        app.action_jump()
        await until(pilot, lambda: isinstance(app.screen, PaneJump))
        await pilot.press("c")
        await until(pilot, lambda: app.screen is dialog and app.focused is dialog.focus_chain[2])
        dialog.query_one("#set-seconds").value = "3.25"
        await pilot.pause()
        await pilot.press("escape")
        await until(pilot, lambda: "esc again leaves" in str(dialog.query_one("#report").content))
        assert app.screen is dialog
        await go_to(pilot, app.picker, "escape")


async def test_no_screen_is_drawn_behind_one_below_it(open_app, go_to, screen_text) -> None:
    async with open_app() as (app, pilot):
        for key, screen in (("f1", HelpScreen), ("f9", SettingsScreen), ("f11", MachineDialog)):
            await go_to(pilot, screen, key)
        below = app.screen_stack[1]
        below.refresh()
        below.get_style_at(0, 0)  # as after a move of the mouse
        app.screen_stack[2].refresh()
        app.screen.refresh()
        assert "This machine" in screen_text(app)
