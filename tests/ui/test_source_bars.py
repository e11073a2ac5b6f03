"""Find, replace, go to a line, wrap, and the path of the kernel's file."""

import pytest

from screens.kernel.panes.log_pane import LogPane
from screens.kernel.run_update import LogLine
from screens.widgets.source_bars import FindBar

TEXT = "one two\nTwo\n" + "\n".join(f"line {n}" for n in range(3, 60)) + "\ntwo"

pytestmark = pytest.mark.slow


async def test_find_go_to_line_and_replace(open_app, type_kernel, until, go_to, screen_text) -> None:
    async with open_app(problem="13") as (app, pilot):
        editor = app.screen.editor
        type_kernel(app.screen, TEXT)
        editor.move_cursor((0, 0))
        await go_to(pilot, "#find-term", "ctrl+f")
        assert app.focused.styles.background != app.focused.parent.styles.background
        await pilot.press(*"two")
        await until(pilot, lambda: editor.selection == ((0, 4), (0, 7)))
        await until(pilot, lambda: "1 of 3" in screen_text(app))
        await pilot.press("enter")
        assert editor.selection == ((1, 0), (1, 3))
        await pilot.press("up", "up")
        assert editor.selection == ((59, 0), (59, 3))
        await go_to(pilot, editor, "escape")
        await until(pilot, lambda: "find" not in screen_text(app).splitlines()[-4])
        editor.move_cursor((2, 1))
        await go_to(pilot, "#line-number", "ctrl+g")
        await pilot.press(*"50")
        await until(pilot, lambda: editor.cursor_location == (49, 0))
        await go_to(pilot, editor, "escape")
        assert editor.cursor_location == (2, 1)
        await go_to(pilot, "#line-number", "ctrl+g")
        await go_to(pilot, editor, *"999", "enter")
        assert editor.cursor_location == (59, 0)
        editor.move_cursor((0, 0))
        await go_to(pilot, "#find-term", "ctrl+f")
        await pilot.press(*"two", "tab", *"2", "enter")
        assert editor.text == TEXT.replace("two", "2", 1)
        await pilot.press("ctrl+a")
        assert editor.text == TEXT.replace("two", "2").replace("Two", "2")
        await until(pilot, lambda: "2 replaced" in screen_text(app))
        await pilot.press("escape", "ctrl+z")
        await until(pilot, lambda: editor.text == TEXT.replace("two", "2", 1))


async def test_lines_wrap_and_path_is_shown_and_copied(open_app, type_kernel, until, go_to, screen_text) -> None:
    async with open_app(problem="13") as (app, pilot):
        type_kernel(app.screen, "# " + " ".join(f"word{n}" for n in range(40)))
        await go_to(pilot, "word0", "ctrl+home")
        assert "word39" not in screen_text(app)
        await pilot.press("f16")  # shift+F4
        await until(pilot, lambda: "word39" in screen_text(app))
        await until(pilot, lambda: "13_gemm_allreduce/you/kernel.py · shift+F2 copies" in screen_text(app))
        await pilot.press("f14")
        assert app.clipboard == str(app.screen.session.path)


async def test_find_in_the_log(open_app, until, go_to, screen_text) -> None:
    async with open_app(problem="13", size=(160, 50)) as (app, pilot):
        screen = app.screen
        log = screen.query_one(LogPane)
        log.write([LogLine(f"step {number} of the Warmup", number % 2, "text") for number in range(200)])
        screen.go_to("log")
        await until(pilot, lambda: log.has_focus)
        await go_to(pilot, "#find-term", "ctrl+f")
        await pilot.press(*"step 17")
        await until(pilot, lambda: "1 of 11" in screen_text(app))  # 17, and 170 to 179
        assert log.cursor == 17
        await until(pilot, lambda: "step 17 of" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: log.cursor == 170 and "2 of 11" in screen_text(app))
        assert "^a" not in screen_text(app)  # nothing is replaced there
        await pilot.press("escape")
        await until(pilot, lambda: log.has_focus and not screen.query_one(FindBar).has_class("open"))
        assert log.cursor == 170
