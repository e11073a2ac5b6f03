"""Keys that arrive after their dialog has closed, and keys that are typed ahead."""

import asyncio
import itertools
import math
import time

import pytest
from rich.style import Style
from textual.events import Click, Key, MouseDown, MouseUp
from textual.widgets import Button, OptionList, Select
from waiting import PATIENCE_S

from screens import terminal_app
from screens.actions import ACTIONS
from screens.dialogs.help import HelpScreen
from screens.dialogs.key_editor import KeyEditor, NextKey
from screens.dialogs.questions import Question
from screens.dialogs.settings import SettingsScreen
from screens.duel.setup import DuelSetup
from screens.kernel.setting_dialog import SettingDialog
from screens.profile import ProfileScreen
from screens.widgets.tables import FigureTable

pytestmark = pytest.mark.slow


async def closed_by_escape(app, pilot, until) -> Key:
    """Opens and closes the help. Returns the key that closed it, before the display shows the change."""
    below = app.screen
    await pilot.press("f1")
    await until(pilot, lambda: isinstance(app.screen, HelpScreen) and app.screen.is_mounted)
    escape = Key("escape", None)
    app.post_message(escape)
    async with asyncio.timeout(PATIENCE_S):
        while app.screen is not below:
            await asyncio.sleep(0)
    return escape


async def test_key_at_closing_dialog_does_not_reach_editor(open_app, until) -> None:
    async with open_app(problem="13") as (app, pilot):
        editor = app.screen.editor
        before = editor.text
        await closed_by_escape(app, pilot, until)
        app.post_message(Key("x", "x"))
        await until(pilot, lambda: app._vanished_at < math.inf)
        await pilot.pause(0.4)
        assert editor.text == before
        await pilot.press("y")
        await until(pilot, lambda: editor.text == f"y{before}")


async def test_key_that_closes_dialog_acts_once_when_held(open_app, until) -> None:
    async with open_app(problem="13") as (app, pilot):
        kernel = app.screen
        pressed = (await closed_by_escape(app, pilot, until)).time
        for count in range(1, 20):  # 30 keys per second
            key = Key("escape", None)
            key.time = pressed + count / 30
            app.post_message(key)
        await until(pilot, lambda: app._vanished_at < math.inf)
        await pilot.pause(0.4)
        assert app.screen is kernel
        assert not kernel.was_pressed("cancel")
        again = Key("escape", None)
        again.time = max(pressed + 20 / 30 + 0.3, time.monotonic())  # released, and pressed again
        app.post_message(again)
        await until(pilot, lambda: kernel.was_pressed("cancel"))


async def test_keys_typed_ahead_reach_the_opening_dialog(open_app, until) -> None:
    async with open_app(problem="13") as (app, pilot):
        kernel = app.screen
        before = kernel.editor.text
        for key, character in (("f4", None), ("space", " "), ("end", None), ("space", " ")):
            app.post_message(Key(key, character))
        await until(pilot, lambda: isinstance(app.screen, SettingDialog) and app.screen.query("#preset"))
        preset = app.screen.query_one("#preset", Select)
        await until(pilot, lambda: preset.value == "production" and not preset.expanded)
        assert isinstance(app.screen, SettingDialog)
        assert kernel.editor.text == before


async def test_no_key_reaches_dialog_before_its_fields(open_app, until) -> None:
    async with open_app(problem="13") as (app, pilot):
        kernel = app.screen
        app.push_screen(SettingDialog(kernel.session))
        for key in ("enter", "escape"):
            await app.on_event(Key(key, None))
        assert not app.screen.is_mounted
        assert app.screen is not kernel
        await until(pilot, lambda: app.screen is kernel)


async def test_keys_wait_for_slowly_opening_screen(open_app, until) -> None:
    async with open_app(problem="13") as (app, pilot):
        kernel = app.screen
        for key, screen in (("f8", DuelSetup), ("f7", Question), ("shift+f6", ProfileScreen)):
            typed = f"y{kernel.editor.text}"
            app.post_message(Key(key, None))
            await pilot.pause(0)
            app.post_message(Key("x", "x"))
            await until(pilot, lambda: isinstance(app.screen, screen))  # noqa: B023
            app.post_message(Key("escape", None))
            await until(pilot, lambda: app.screen is kernel and app._vanished_at < math.inf)
            await pilot.press("ctrl+home", "y")
            await until(pilot, lambda: kernel.editor.text == typed)  # noqa: B023


async def test_text_typed_before_the_file_is_read_stays(open_app, services, until, monkeypatch) -> None:
    note = services.workspace.note_open
    monkeypatch.setattr(services.workspace, "note_open", lambda *asked: (time.sleep(0.3), note(*asked))[1])
    async with open_app() as (app, pilot):
        app.open_problem(app.services.catalogue.find("13"))
        app.post_message(Key("x", "x"))
        await until(pilot, lambda: app.screen.editor.text == f"x{app.screen.problem.baseline_source}")


async def test_keys_go_on_where_dialog_cannot_be_prepared(open_app, until) -> None:
    async with open_app(problem="13") as (app, pilot):
        kernel = app.screen
        before = kernel.editor.text
        settings = app.services.paths.settings_file
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text("no = [toml")
        app.post_message(Key("f8", None))
        app.post_message(Key("x", "x"))
        await until(pilot, lambda: kernel.editor.text == f"x{before}")
        assert app.screen is kernel


async def test_held_key_reads_stylesheet_for_last_theme(open_app, until, monkeypatch) -> None:
    async with open_app(problem="13") as (app, pilot):
        read, reparse = [], app.stylesheet.reparse
        monkeypatch.setattr(app.stylesheet, "reparse", lambda: (read.append(app.theme), reparse()))
        names = app.theme_names
        last = names[(names.index(app.theme) + 21) % len(names)]
        for _ in range(21):
            app.post_message(Key("shift+f9", None))
        await until(pilot, lambda: not app._keys and read and read[-1] == last == app.theme)
        assert len(read) <= 2  # the first key is handled alone


async def test_new_size_is_drawn_though_timer_starts_late(open_app, until, monkeypatch) -> None:
    async with open_app() as (app, pilot):
        late = itertools.count()
        monkeypatch.setattr("textual._time.get_time", lambda: time.monotonic() + 0.01 * next(late))
        for width in (100, 80):
            await pilot.resize_terminal(width, 30)
            await until(pilot, lambda: app.screen.outer_size.width == width)  # noqa: B023


async def test_no_action_opens_screens_above_each_other(open_app, until) -> None:
    """However often a held key, or one that is pressed while the app is busy, asks for them."""
    left_out = {"quit", "suspend", "edit_outside", "problems", "demo", "save", "run", "baseline_run", "next_theme"}
    only_the_newest = {"variants", "profile"}
    async with open_app(problem="13") as (app, pilot):
        for action in ACTIONS:
            place = {"problems": app.picker, "kernel": app.screen, "everywhere": app}.get(action.scope)
            if place is None or action.name in left_out | only_the_newest:
                continue
            for _ in range(20):
                await app._dispatch_action(place, action.name, ())
            await until(pilot, lambda: not app._in_preparation)
            await pilot.pause()
            assert len(app.screen_stack) < 5, action.name
            while len(app.screen_stack) > 2:
                await app.pop_screen()


async def test_held_enter_opens_one_dialog(open_app, until, go_to) -> None:
    async with open_app() as (app, pilot):
        await go_to(pilot, SettingsScreen, "f9")
        for _ in range(20):
            app.screen.query_one("#set-keymap", Button).press()
        await until(
            pilot, lambda: isinstance(app.screen, KeyEditor) and app.screen.query_one(OptionList).highlighted == 1
        )
        for _ in range(20):
            app.screen.query_one(OptionList).action_select()
        await until(pilot, lambda: isinstance(app.screen, NextKey))
        await pilot.pause()
        assert [type(each) for each in app.screen_stack[1:]] == [SettingsScreen, KeyEditor, NextKey]


async def test_keys_are_gathered_only_where_they_type(open_app, monkeypatch) -> None:
    looked = []  # at all keys that wait, for each of them
    monkeypatch.setattr(terminal_app, "text_of", looked.append)
    async with open_app() as (_, pilot):
        await pilot.press(*"jjk")
        assert not looked


async def test_click_on_what_was_shown_before_does_nothing(open_app, until) -> None:
    async with open_app() as (app, pilot):
        categories, problems = app.picker.query_one(OptionList), app.picker.query_one(FigureTable)
        for widget, meta in (
            (problems, {"row": -1, "column": 99}),
            (categories, {"option": 99}),
            (categories, {"option": 1}),
        ):
            widget.post_message(Click(widget, 1, 1, 0, 0, 1, False, False, False, style=Style.from_meta(meta)))
        await until(pilot, lambda: categories.highlighted == 1 and app.picker.category != "")


async def test_press_on_a_removed_widget_does_nothing(open_app, go_to) -> None:
    async with open_app() as (app, pilot):
        name = app.picker.query_one("#name")
        parent, at = name.parent, name.region.offset
        assert app.get_widget_at(*at)[0] is name
        name._detach()  # as if removed; the display still shows it
        for press in (MouseDown, MouseUp):
            app.post_message(press(None, *at, 0, 0, 1, False, False, False, *at))
        await go_to(pilot, HelpScreen, "f1")
        name._attach(parent)
