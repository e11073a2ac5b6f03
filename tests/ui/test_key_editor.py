"""The key editor: catching a key, naming conflicts, restoring the usual keys; and keymaps written by hand."""

import importlib
import pkgutil

import pytest
from textual.binding import Binding
from textual.dom import DOMNode
from textual.widgets import OptionList

import screens
from arena.settings import Settings, load_settings
from screens.actions import ACTIONS, action_named, key_words
from screens.dialogs.key_editor import KeyEditor, NextKey
from screens.dialogs.settings import SettingsScreen
from screens.keymap import as_sent, keymap_fault, keys_of, refusal, rivals

pytestmark = pytest.mark.slow


async def in_the_editor(app, pilot, until, go_to) -> KeyEditor:
    await go_to(pilot, SettingsScreen, "f9")
    app.screen.query_one("#set-keymap").press()
    await until(pilot, lambda: bool(app.screen.query("#actions")) and app.screen.focused is not None)
    assert isinstance(app.screen, KeyEditor)
    return app.screen


async def give(app, pilot, until, go_to, action: str, key: str) -> None:
    actions = app.screen.query_one("#actions", OptionList)
    await until(pilot, lambda: any(option.id == action for option in actions.options))
    actions.highlighted = actions.get_option_index(action)
    await go_to(pilot, NextKey, "enter")
    await go_to(pilot, KeyEditor, key)


async def test_a_key_is_refused_taken_and_saved(open_app, until, go_to, screen_text, paths) -> None:
    async with open_app(size=(120, 60)) as (app, pilot):
        editor = await in_the_editor(app, pilot, until, go_to)
        await give(app, pilot, until, go_to, "history", "f1")  # does something elsewhere
        assert editor._keymap == {"history": "f1"}
        await give(app, pilot, until, go_to, "history", "escape")  # changes nothing
        assert editor._keymap == {"history": "f1"}
        await give(app, pilot, until, go_to, "history", "f5")
        await until(pilot, lambda: "F5 is the key of both “run” and “history”" in screen_text(app))
        await until(pilot, lambda: "Also the key of “run”." in screen_text(app))
        await pilot.press("ctrl+s")
        assert app.screen is editor
        await until(pilot, lambda: "not saved: F5 is" in screen_text(app))
        await pilot.press("backspace")  # restores the usual key
        assert editor._keymap == {}
        await until(pilot, lambda: "Also the key" not in screen_text(app))
        await give(app, pilot, until, go_to, "run", "r")
        assert editor._keymap == {}
        await until(pilot, lambda: "r is needed to type" in screen_text(app))
        await give(app, pilot, until, go_to, "sort", "o")
        assert editor._keymap == {"sort": "o"}
        await pilot.press("ctrl+r")
        assert editor._keymap == {}
        await until(pilot, lambda: "In the list of problems" in screen_text(app))
        await until(pilot, lambda: "Run the kernel in the editor" in screen_text(app))
        await give(app, pilot, until, go_to, "run", "ctrl+r")
        await until(pilot, lambda: "1 key of your own" in screen_text(app))
        await go_to(pilot, SettingsScreen, "ctrl+s")
        await until(pilot, lambda: "1 of your own" in screen_text(app))
        await pilot.press("ctrl+s")
        await until(pilot, lambda: load_settings(paths).keymap == {"run": "ctrl+r"})


def test_usual_keys_do_not_clash_and_are_sent() -> None:
    assert [action.name for action in ACTIONS if rivals(action, {})] == []
    assert [action.name for action in ACTIONS for key in keys_of(action, {}) if refusal(action, key)] == []


def test_f5_to_f8_have_one_meaning() -> None:
    for module in pkgutil.walk_packages(screens.__path__, "screens."):
        if module.name != "screens.main":
            importlib.import_module(module.name)
    found: dict[str, set[str]] = {}
    kinds = [DOMNode]
    for kind in kinds:
        kinds += kind.__subclasses__()
        for binding in Binding.make_bindings(
            vars(kind).get("BINDINGS", ()) if kind.__module__[:7] == "screens" else ()
        ):
            found.setdefault(binding.key, set()).add(binding.action)
    assert {key: found[key] for key in ("f5", "f6", "f7", "f8")} == {
        "f5": {"run", "submit", "decide"},
        "f6": {"history"},
        "f7": {"ask_model"},
        "f8": {"duel", "rematch"},
    }


@pytest.mark.parametrize(
    ("keymap", "fault"),
    [
        ({"run": "ctrl+r"}, ""),
        ({"run": "f6", "history": "f5"}, ""),
        ({"new": "slash", "filter": "colon", "slower": "minus"}, ""),
        ({"run": '"ctrl+r"'}, "is no key"),
        ({"run": "control+r"}, "is no key"),
        ({"fly": "f8"}, "no action 'fly'"),
        ({"run": "f6"}, "run and history have the same key"),
        ({"save": "s"}, "needed to type"),
        ({"run": "shift+f3"}, "to most terminals"),
    ],
)
def test_what_is_wrong_with_a_keymap_is_said(keymap: dict[str, str], fault: str) -> None:
    said = keymap_fault(keymap)
    assert fault in said
    assert bool(said) == bool(fault)


async def test_letters_search_settings_and_actions(open_app, until, go_to, screen_text) -> None:
    async with open_app(size=(100, 30)) as (app, pilot):
        await pilot.press("f9", *"zz", "enter", "backspace", "backspace", *"keymap")  # enter stays: it finds nothing
        await until(pilot, lambda: "theme" not in screen_text(app) and "edit keys" in screen_text(app))
        await pilot.press("enter", "enter")
        await until(pilot, lambda: isinstance(app.screen, KeyEditor) and app.screen.focused is not None)
        await go_to(pilot, NextKey, *"suspe", "enter", "enter")
        assert app.screen._action.name == "suspend"


async def test_keymap_written_wrongly_is_named_at_start(open_app, services, until) -> None:
    services.settings = Settings(device="cpu", keymap={"run": '"ctrl+r"'})
    async with open_app() as (app, pilot):
        await until(pilot, lambda: any("is no key" in said.message for said in app._notifications))


def test_function_keys_with_shift_have_both_names() -> None:
    assert as_sent({"run": "shift+f6", "history": "f18, f5", "find": "ctrl+f"}) == {
        "run": "shift+f6,f18",
        "history": "f18,f5,shift+f6",
        "find": "ctrl+f",
    }
    assert key_words("f18") == key_words("shift+f6,f18") == "shift+F6"


def test_ctrl_space_has_both_of_its_names() -> None:
    assert as_sent({"complete": "ctrl+space"}) == {"complete": "ctrl+space,ctrl+@"}
    assert as_sent({"complete": "ctrl+@"}) == {"complete": "ctrl+@,ctrl+space"}
    assert keymap_fault({"run": "ctrl+@", "complete": "ctrl+j", "complete_name": "ctrl+j"}) == ""
    assert key_words("ctrl+@") == key_words("ctrl+space,ctrl+@") == "ctrl+space"


def test_keys_are_written_as_people_know_them() -> None:
    assert [key_words(key) for key in ("f5", "shift+f3", "escape", "slash", "shift+d,D")] == [
        "F5",
        "shift+F3",
        "esc",
        "/",
        "D",
    ]
    assert action_named("fly") is None


async def test_texts_name_the_keys_of_ones_own(open_app, until, go_to, screen_text, services, paths) -> None:
    keys = {"save": "ctrl+w", "filter": "f", "next_view": "f4", "setting": "f11"}
    services.settings = Settings(device="cpu", keymap=keys)
    async with open_app() as (app, pilot):
        await go_to(pilot, "Press enter on a problem, then ctrl+w.", "b")
        await until(pilot, lambda: "F4 view · f filter" in screen_text(app))
        await go_to(pilot, "▸by category", "f4")
        await go_to(pilot, "ctrl+w saves", "escape", "f9")
        app.screen.query_one("#set-seconds").value = "3"
        await pilot.press("ctrl+w")
        await until(pilot, lambda: load_settings(paths).seconds == 3)
