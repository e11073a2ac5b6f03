"""Vim's keys in the editor of the kernel screen and of a duel."""

import random

import pytest
from textual.events import Key
from textual.widgets.text_area import Selection
from waiting import comes_true

from arena.settings import Settings
from arena.workspace.named_kernels import BASELINE
from screens.app_protocol import DuelPlan
from screens.duel.live import YOU, LiveDuelScreen

CODE = "def f(a):\n    return a\n"


async def test_vim_undoes_and_redoes_one_command_each(editing) -> None:
    async with editing() as (pilot, editor):
        pilot.app.vim_keys = True
        editor.open_saved(CODE)
        texts = [CODE]
        lines = ["backspace", *"jccx = (", "enter", "1", "enter", "backspace", ")"]  # the first moves the cursor alone
        for keys in ("x", "2x", "iuv", lines, "kdd", "Aw"):
            await pilot.press(*keys)
            assert editor.mode == ("INSERT" if keys[-1] in ")vw" else "NORMAL")
            editor.leave()
            texts.append(editor.text)
        assert texts[4] == "uv f(a):\n    x = (\n        1\n    )\n"
        assert len(set(texts)) == len(texts)
        for key, course in ("u", texts[-2::-1]), ("ctrl+r", texts[1:]):
            for text in course:
                await pilot.press(key)
                assert editor.text == text


async def test_vim_copies_centres_and_undoes_onto_a_character(editing) -> None:
    async with editing((60, 10)) as (pilot, editor):
        pilot.app.vim_keys = True
        editor.open_saved("ab\n" * 50)
        await pilot.press("pagedown")
        assert editor.cursor_location[0] == editor.size.height - 2
        await pilot.press(*"20Gyy")
        assert pilot.app.clipboard == "ab"
        pilot.app.copy_to_clipboard("kept")
        await pilot.press(*"zz")
        await comes_true(lambda: 3 <= editor.cursor_location[0] - editor.scroll_offset.y <= 6)
        await pilot.press(*"Aabcd")
        editor.leave()
        await pilot.press(*"u")
        assert (editor.text, editor.cursor_location) == ("ab\n" * 50, (19, 1))
        assert pilot.app.clipboard == "kept"


async def test_vim_takes_over_selection_of_mouse(editing) -> None:
    async with editing() as (pilot, editor):
        pilot.app.vim_keys = True
        editor.open_saved(CODE)
        editor.selection = Selection((0, 0), (0, 4))
        assert editor.mode == "VISUAL"
        await pilot.press("d")
        assert editor.text == CODE[4:]
        await pilot.press("ctrl+z")  # does not select it again
        assert (editor.text, editor.mode, editor.selection) == (CODE, "NORMAL", Selection.cursor((0, 0)))
        editor.selection = Selection.cursor((1, 4))
        await pilot.press("x")
        assert editor.text == CODE.replace("return", "eturn")


async def test_selected_lines_do_not_scroll_sideways(editing) -> None:
    async with editing() as (pilot, editor):
        pilot.app.vim_keys = True
        editor.open_saved(f"x = 1  # {'long ' * 60}\nreturn\n")
        await pilot.press(*"V")
        await comes_true(lambda: editor.mode == "V-LINE")
        await pilot.pause()
        assert editor.scroll_offset.x == 0
        await pilot.press(">")
        assert (editor.cursor_location, editor.scroll_offset.x) == ((0, 4), 0)


async def test_text_burst_in_normal_mode_is_no_paste(editing) -> None:
    async with editing() as (pilot, editor):
        pilot.app.vim_keys = True
        editor.open_saved(CODE * 20)
        for key in "jjjjjjjjjjjjjjjjjjjj":
            pilot.app.post_message(Key(key, key))
        await comes_true(lambda: editor.cursor_location == (20, 0))
        assert editor.text == CODE * 20


async def test_vim_keys_keep_read_only_text(editing) -> None:
    async with editing() as (pilot, editor):
        pilot.app.vim_keys = True
        editor.open_saved(CODE)
        editor.read_only = True
        await pilot.press(*"jddixu")
        assert (editor.text, editor.mode, editor.cursor_location[0]) == (CODE, "NORMAL", 1)


async def test_turning_vim_off_ends_insert_mode(editing) -> None:
    async with editing() as (pilot, editor):
        pilot.app.vim_keys = True
        editor.open_saved(CODE)
        await pilot.press(*"ix")
        pilot.app.vim_keys = False
        await pilot.press("y", "enter", "z", "ctrl+z")
        assert editor.text == f"xy\n{CODE}"


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_undo_after_any_vim_keys_restores_text(editing, seed) -> None:
    rng = random.Random(seed)
    async with editing() as (pilot, editor):
        pilot.app.vim_keys = True
        editor.open_saved(CODE * 3)
        for _ in range(60):
            key = rng.choice([*"jkwbdcxpPoOiaAJ>.vVyu2}(", "escape"])
            if key == "escape":
                editor.leave()
            elif editor.types:
                editor.insert(key)
            else:
                editor.press(key)
            assert editor.vim is not None
        editor.leave()
        editor.leave()
        after = editor.text
        for _ in range(100):
            editor.press("u")
        assert editor.text == CODE * 3
        for _ in range(100):
            editor.press("\x12")
        assert editor.text == after


async def test_esc_ends_vim_mode_before_it_cancels(open_app, services, until, go_to, screen_text) -> None:
    services.settings = Settings(device="cpu", vim=True)
    async with open_app(problem="13", size=(60, 24)) as (app, pilot):
        screen = app.screen
        await until(pilot, lambda: screen.editor.text and "NORMAL" in screen_text(app))
        text = screen.editor.text
        await go_to(pilot, "INSERT", *"i#")
        await go_to(pilot, "NORMAL", "escape")
        assert not screen.was_pressed("cancel")
        await pilot.press(*":w", "enter")
        await until(pilot, lambda: screen.session.path.read_text() == f"#{text}")
        await pilot.press("escape")
        await until(pilot, lambda: screen.was_pressed("cancel"))
        await pilot.press(*":g/a/d", "enter")
        await until(pilot, lambda: any("editor: ':g/a/d'" in str(note.message) for note in app._notifications))
        await go_to(pilot, "#find-term", "ctrl+f")


async def test_duel_shows_vim_mode_and_submits(open_app, services, until, go_to, screen_text) -> None:
    services.settings = Settings(device="cpu", vim=True)
    async with open_app() as (app, pilot):
        app.play_duel(app.services.catalogue.find("13"), DuelPlan(YOU, BASELINE, 10.0))
        await until(pilot, lambda: isinstance(app.screen, LiveDuelScreen) and "NORMAL" in screen_text(app))
        screen = app.screen
        await go_to(pilot, "INSERT", *"ggdGipass")
        await pilot.press("escape", *":w", "enter")
        await until(pilot, lambda: screen.state.left.last is not None)
        assert screen.state.left.last.kernel.source == "pass"
        await pilot.press("u", "ctrl+r")
        await until(pilot, lambda: screen.unsaved == "" and screen.panes["left"].text == "pass")
        await pilot.press("escape", "escape", *":q", "enter")
        await until(pilot, lambda: screen.was_pressed("leave_duel"))
        await go_to(pilot, app.picker, *":q", "enter")
