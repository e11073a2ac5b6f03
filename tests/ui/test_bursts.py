"""Text pasted by a terminal without bracketed paste: keys that come faster than anybody types."""

from typing import Any, ClassVar

import pytest
from textual.app import ComposeResult
from textual.events import Key
from waiting import comes_true

from screens.terminal_app import TerminalApp
from screens.themes import VARIABLE_DEFAULTS
from screens.widgets.editor import Editor
from screens.widgets.source import SOURCE_STYLES

TEXT = "def solution(x):\n    if x is not None:\n        return x\n\treturn x\n\n\nresult = 1\n"


class Page(TerminalApp):
    CSS_PATH: ClassVar[Any] = [SOURCE_STYLES]

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return VARIABLE_DEFAULTS

    def compose(self) -> ComposeResult:
        yield Editor(id="kernel")


def send(app: Page, text: str, gap_s: float) -> None:
    """Sends a text as keys that came `gap_s` seconds apart, with a pause after 40 keys."""
    names = {"\n": ("enter", "\r"), "\t": ("tab", "\t"), " ": ("space", " ")}
    for count, character in enumerate(text):
        key = Key(*names.get(character, (character, character)))
        key.time += count * gap_s + count // 40 * 0.1
        app.post_message(key)


async def becomes(pilot, editor, text) -> bool:
    """Waits until the editor has the text. Returns whether it keeps it."""
    await comes_true(lambda: editor.text == text)
    await pilot.pause(0.3)
    return editor.text == text


@pytest.mark.parametrize("lines", [1, 300])
async def test_a_burst_is_inserted_as_it_is(lines) -> None:
    async with Page().run_test() as pilot:
        editor = pilot.app.query_one(Editor)
        editor.focus()
        send(pilot.app, TEXT * lines, 0.0001)
        assert await becomes(pilot, editor, TEXT * lines)


async def test_typed_lines_are_indented() -> None:
    async with Page().run_test() as pilot:
        editor = pilot.app.query_one(Editor)
        editor.focus()
        send(pilot.app, "if x:\ny = 1\nz", 0.03)
        assert await becomes(pilot, editor, "if x:\n    y = 1\n    z")


async def test_keys_after_a_burst_keep_their_order() -> None:
    async with Page().run_test() as pilot:
        editor = pilot.app.query_one(Editor)
        editor.focus()
        send(pilot.app, TEXT, 0.0001)
        for name in ("up", "home", "delete"):
            pilot.app.post_message(Key(name, None))
        assert await becomes(pilot, editor, TEXT.replace("result", "esult"))
