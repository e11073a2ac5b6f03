"""The editor: colours, indentation, what is saved and what is not."""

import random
import time
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
from rich.cells import cell_len
from textual.app import App, ComposeResult
from textual.containers import Vertical
from textual.events import Key
from textual.geometry import Region
from textual.widgets import DataTable, Markdown, OptionList
from textual.widgets.text_area import Selection
from waiting import comes_true

from arena.words.untrusted_text import masked
from screens.terminal_app import TerminalApp
from screens.themes import VARIABLE_DEFAULTS
from screens.widgets.editor import Editor
from screens.widgets.highlight import line_spans, parts_of
from screens.widgets.source import Source, Writing
from screens.widgets.text_lines import PlainStatic, next_place, pattern_of, places_of

KERNEL = '''import torch
SRC = r"""
__global__ void add(float *x) {  // sum
}
"""
def solution(a):
    """Words; not code."""
    return a  # """ is no string here
'''


def kinds(row: int) -> dict[str, str]:
    lines = KERNEL.split("\n")
    parts = parts_of(lines, "python")
    return {lines[row][s:e]: kind for s, e, kind in line_spans(lines[row], parts.get(row, []), "python")}


def test_each_language_has_its_colours() -> None:
    assert (kinds(0)["import"], kinds(5)["solution"]) == ("keyword", "name")
    inside = kinds(2)
    assert (inside["__global__"], inside["float"], inside["// sum"]) == ("keyword", "builtin", "comment")
    assert kinds(6) == {'"""Words; not code."""': "string"}
    assert kinds(7)['# """ is no string here'] == "comment"


def test_only_fences_of_prose_are_code() -> None:
    lines = [
        "<<< user >>>",
        "Write the code in a class for all ranks, and import 3 modules.",
        "```python",
        "def solution(a):",
        '    """Words; not code."""',
        "```",
        "for is a word again",
        "```",
        "def is only an output",
        "```",
    ]
    parts = parts_of(lines, "prose")

    def found(row: int) -> dict[str, str]:
        return {lines[row][s:e]: kind for s, e, kind in line_spans(lines[row], parts.get(row, []), "prose")}

    assert found(0) == {"<<< user >>>": "name"}
    assert found(1) == found(6) == found(8) == {}
    assert found(2) == {"```python": "string"}
    assert found(3)["def"] == "keyword"
    assert found(4) == {'"""Words; not code."""': "string"}


async def test_unfinished_answer_is_prose_up_to_its_fence(editing) -> None:
    async with editing() as (pilot, _):
        await pilot.app.mount(writing := Writing())
        long = "Now " * 10 + "\n```python\n" + "x = 1\n" * 10_000
        for text, language in (("Here:\n```python\n", "prose"), ("import torch\n", "python"), (long, "prose")):
            writing.follow(text)
            assert (writing.source_language, writing.cursor_location) == (language, writing.document.end)
        writing._find_parts()
        assert writing._parts[len(writing._parts) - 1][-1].language == "python"


async def test_enter_keeps_indentation_and_backspace_takes_one_level(editing) -> None:
    async with editing() as (pilot, editor):
        editor.show_saved("def solution(x):")
        editor.move_cursor(editor.document.end)
        await pilot.press("enter", *"pass", "enter", "backspace", *"y")
        assert editor.text == "def solution(x):\n    pass\ny"
        await pilot.press("home", "tab", "end", *"long" * 30)
        assert editor.scroll_x
        await pilot.press("enter")
        assert (editor.cursor_location, editor.scroll_x) == ((3, 4), 0)


# "|" is the cursor, "^" the other end of a selection, "_" types a blank.
SESSIONS = [
    ("    a|", "enter b", "    a\n    b|"),
    ("def f(x):|", "enter tab", "def f(x):\n        |"),
    ("f(|)", "enter 1", "f(\n    1|)"),
    ("  ^ab|c", "x", "  x|c"),
    ("      |x", "backspace", "    |x"),
    ("        |x", "backspace", "    |x"),
    ("   |  x", "backspace", "|  x"),
    ("one\n|two", "backspace", "one|two"),
    ("  ^  |x", "backspace", "  |x"),
    ("a|b", "tab", "a   |b"),
    ("abcd|e", "tab", "abcd    |e"),
    ("^a\n b|\n\nc", "tab", "^    a\n     b|\n\nc"),
    ("|a\nb^c\nd", "tab", "|    a\n    b^c\nd"),
    ("a\n^b\n\n|c", "tab", "a\n^    b\n\n|c"),
    ("  ^one| two", "tab", "      ^one| two"),
    ("  ^one| two", "shift+tab shift+tab", "^one| two"),
    ("  a|b", "shift+tab", "a|b"),
    (" |     a", "shift+tab", "|  a"),
    ("a\n    b|", "shift+tab ctrl+z", "a\n    b|"),
    ("a|\nb", "shift+tab", "a|\nb"),
    ("a|b\nc", "ctrl+underscore", "# a|b\nc"),
    ("  # a\n  |b", "ctrl+slash", "  # a\n  # |b"),
    ("^# a\nb|", "ctrl+underscore", "^# # a\n# b|"),
    ("^  # a\n\n  #b|", "ctrl+underscore", "^  a\n\n  b|"),
    ("one| two", "x _ ctrl+z", "one| two"),
    ("one| two", "x left y ctrl+z ctrl+z ctrl+y", "onex| two"),
]


def with_marks(editor: Editor) -> str:
    """The text with the cursor and the selection of SESSIONS."""
    lines, (start, end) = editor.text.split("\n"), editor.selection
    for (row, column), mark in sorted([(end, "|"), *([(start, "^")] * (start != end))], reverse=True):
        lines[row] = lines[row][:column] + mark + lines[row][column:]
    return "\n".join(lines)


async def test_keys_leave_text_and_cursor_as_said(editing) -> None:
    async with editing() as (pilot, editor):
        editor.open_saved("one")
        await pilot.press("x", "ctrl+z", "ctrl+z", "ctrl+z")
        assert (editor.text, editor.dirty) == ("one", False)  # undo ends at the file
        editor.move_cursor((0, 2))
        editor.show_saved("eins")
        assert editor.cursor_location == (0, 2)
        await pilot.press("ctrl+z")
        assert editor.text == "one"
        for before, keys, after in SESSIONS:
            editor.load_text(before.replace("|", "").replace("^", ""))
            places = {}
            for mark, other in ("|", "^"), ("^", "|"):
                head, found, _ = before.replace(other, "").partition(mark)
                places |= {mark: (head.count("\n"), len(head.rpartition("\n")[2]))} if found else {}
            editor.selection = Selection(places.get("^", places["|"]), places["|"])
            await pilot.press(*("space" if key == "_" else key for key in keys.split()))
            assert (before, keys, with_marks(editor)) == (before, keys, after)
        assert pilot.app.focused is editor


async def test_lines_are_drawn_as_they_are_now(editing) -> None:
    async with editing() as (pilot, editor):
        editor.open_saved("one\ntwo\nthree\nfour")
        await pilot.press("down", "down", *"new ", "down", "down")
        editor.replace("eins", (0, 0), (0, 3))
        await pilot.pause()
        drawn = [strip.text.strip("▊▎ ").split() for strip in editor.render_lines(Region(0, 1, 40, 4))]
        assert drawn == [["1", "eins"], ["2", "two"], ["3", "new", "three"], ["4", "four"]]


async def test_lines_become_comments_in_their_language(editing) -> None:
    async with editing() as (pilot, editor):
        editor.open_saved(KERNEL)
        await pilot.pause()
        editor.render_lines(Region(0, 0, 80, 10))  # finds the languages
        for row, comment in (5, "# def solution(a):"), (3, "// }"):
            editor.move_cursor((row, 0))
            await pilot.press("ctrl+slash")
            assert editor.text.splitlines()[row] == comment


async def test_mark_follows_its_line_until_it_changes(editing) -> None:
    async with editing() as (pilot, editor):
        editor.open_saved("one\ntwo\nthree")
        editor.mark_lines({1: "wrong here"})
        await pilot.press("enter")
        assert editor.marks.words == {2: "wrong here"}
        drawn = [strip.text for strip in editor.render_lines(Region(0, 0, 40, 4))]
        assert any("3✗ two" in line for line in drawn)
        await pilot.press("down", "end", "x")
        assert not editor.marks.words
        await pilot.press("backspace")  # the line is again the one that failed
        assert editor.marks.words == {2: "wrong here"}
        editor.mark_lines({})
        await pilot.press("x", "backspace")
        assert not editor.marks.words


async def test_wrapped_lines_are_drawn_whole_and_current(editing) -> None:
    async with editing((40, 10)) as (pilot, editor):
        editor.open_saved(" ".join(f"word{n}" for n in range(20)) + "\nlast")
        editor.soft_wrap = True
        await pilot.pause()
        drawn = "".join(strip.text for strip in editor.render_lines(Region(0, 0, 40, 10)))
        assert all(f"word{n}" in drawn for n in range(20))
        editor.replace("zwei", (1, 0), (1, 4))
        await pilot.pause()
        assert "2  zwei" in "".join(strip.text for strip in editor.render_lines(Region(0, 0, 40, 10)))
        editor.open_saved("first\n" + "/folder" * 8)
        for width in (0, 30):  # a paint between the text and its wrapping
            editor.wrapped_document.wrap(width)
            rows = [strip.text for strip in editor.render_lines(Region(0, 0, 40, 10))]
        assert sum(row.count("/folder") for row in rows) <= 8


HOSTILE = "# \x1b]0;title\x07 \x1b[2J \x9b31m \u202e\tend"
MASKED = "# �]0;title� �[2J �31m �"


async def test_control_characters_are_signs_in_their_columns(editing) -> None:
    async with editing((40, 10)) as (pilot, editor):
        editor.open_saved(f"pass\n{HOSTILE}")
        await pilot.pause()
        assert editor.get_line(1).plain == f"{MASKED}\tend"
        assert len(MASKED) == HOSTILE.index("\t")
        assert editor.text == f"pass\n{HOSTILE}"


class ForeignPage(TerminalApp):
    """A hostile text in widgets of every kind."""

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return VARIABLE_DEFAULTS

    def compose(self) -> ComposeResult:
        yield Source(HOSTILE)
        yield Source(id="diff")
        yield Writing()
        yield PlainStatic(HOSTILE)
        yield OptionList(HOSTILE)
        yield Markdown(HOSTILE)
        yield DataTable()
        with Vertical() as pane:
            pane.border_title = HOSTILE

    def on_mount(self) -> None:
        super().on_mount()
        for widget in self.screen.children:
            widget.styles.height = 5
        self.query_one(Vertical).styles.border = ("round", "white")
        self.query_one("#diff", Source).compare({}, {"kernel.py": HOSTILE}, "a", "b")
        self.query_one(Writing).follow(f"{HOSTILE}\rmore")
        table = self.query_one(DataTable)
        table.add_column(HOSTILE)
        table.add_row(HOSTILE)
        self.notify(HOSTILE, markup=False)


async def test_no_widget_sends_control_characters_to_the_terminal() -> None:
    app = ForeignPage()
    async with app.run_test(size=(80, 60)) as pilot:
        await pilot.pause()
        lines = [strip.text for strip in app.screen._compositor.render_strips()]
        assert sum("[2J" in line for line in lines) >= 7
        assert not any(masked(line) != line or "\n" in line for line in lines)
        assert all(cell_len(line) == 80 for line in lines)


def test_a_search_in_lower_case_finds_both() -> None:
    lines = ["Add add", "ADD"]
    assert [start for start, _ in places_of(lines, pattern_of("add"))] == [(0, 0), (0, 4), (1, 0)]
    assert [start for start, _ in places_of(lines, pattern_of("Add"))] == [(0, 0)]
    places = places_of(lines, pattern_of("add"))
    assert next_place(places, (0, 1), backward=False) == 1
    assert next_place(places, (1, 1), backward=False) == 0
    assert next_place(places, (0, 0), backward=True) == 2


CHANGES = {
    "type": lambda editor, rng: editor._replace_via_keyboard(rng.choice("xyz( )"), *editor.selection),
    "enter": lambda editor, rng: editor._type("\n", rng.random()),
    "paste": lambda editor, rng: editor._replace_via_keyboard(
        "word " * 20 + "\n" * rng.randrange(120), *editor.selection
    ),
    "undo": lambda editor, rng: editor.undo(),
    "redo": lambda editor, rng: editor.redo(),
    "restore": lambda editor, rng: editor.replace("new\n" * rng.randrange(30), (0, 0), editor.document.end),
    "outside": lambda editor, rng: editor.show_saved("saved\n" * rng.randrange(40)),
    "load": lambda editor, rng: editor.load_text("loaded\n" * rng.randrange(20)),
    "wrap": lambda editor, rng: setattr(editor, "soft_wrap", not editor.soft_wrap),
    "move": lambda editor, rng: editor.move_cursor((rng.randrange(editor.document.line_count), 3)),
    "batch": lambda editor, rng: [editor.insert("a\nb\n", (rng.randrange(3), 0)) for _ in range(5)],
}


@pytest.mark.parametrize("seed", [2, 4])
async def test_random_changes_keep_lines_and_cursor(editing, seed) -> None:
    rng = random.Random(seed)
    async with editing((50, 12)) as (pilot, editor):
        editor.styles.height, editor.styles.width = 9, 40
        for _ in range(80):
            CHANGES[rng.choice([*CHANGES, "undo", "undo"])](editor, rng)
            lines = editor.wrapped_document
            drawn = lines._offset_to_line_info
            lines.wrap(editor.wrap_width, editor.indent_width)
            assert drawn == lines._offset_to_line_info
            assert editor.cursor_location <= editor.document.end
            if rng.random() < 0.3:
                await pilot.pause()


TEXT = "def solution(x):\n    if x is not None:\n        return x\n\treturn x\n\n\nresult = 1\n"
NAMES = {"\n": ("enter", "\r"), "\t": ("tab", "\t"), " ": ("space", " "), "\r": ("ctrl+j", "\n")}


async def send(app: App[Any], text: str, gaps_s: Sequence[float] = (0.0001,)) -> None:
    """Sends a text as keys that came so many seconds apart, in turn, with a pause after 40 keys. \r: as ctrl+j."""
    at = time.monotonic()
    for count, character in enumerate(text):
        at += gaps_s[count % len(gaps_s)] + (0.1 if count and count % 40 == 0 else 0)
        key = Key(*NAMES.get(character, (character, character)))
        key.time = at
        app.post_message(key)


async def becomes(pilot, editor, text) -> bool:
    """Waits until the editor has the text. Returns whether it keeps it."""
    await comes_true(lambda: editor.text == text)
    return await pilot.pause(0.3) or editor.text == text


SHORT = "a\nif c:\n  d\n  e\nx = [\n    1]\n"
NESTED = "def f(\n    a,\n):\n\n    for b in a:\n        if b:\n            c()\n    return [\n        1,\n    ]\n\n\nd = 1\n"
TABS = "if a:\n\tb\n\tif c:\n\t\td\ne\n"
GAPS_S = [(0.0001,), (0.01,), (0.025,), (0.05,), (0.1,), (0.0, 0.1, 0.03, 0.06, 0.001, 0.08, 0.015)]

PROGRAMS = [*product([TEXT, SHORT, NESTED, TABS, NESTED.replace("\n", "\r")], GAPS_S), (TEXT * 300, GAPS_S[0])]
FINGERS = [
    ("if a:\n b", (0.09,), "if a:\n     b"),
    ("if a:\n\tb", (0.09,), "if a:\n        b"),
    ("if a:\n    b", (0.13,), "if a:\n        b"),
    ("f(\na,\n\tb\n\nc", (0.05,), "f(\n    a,\n        b\n        \n        c"),
]


@pytest.mark.parametrize(("keys", "gaps_s", "text"), [*((t, g, t.replace("\r", "\n")) for t, g in PROGRAMS), *FINGERS])
async def test_only_texts_of_programs_have_their_own_indentation(editing, keys, gaps_s, text) -> None:
    async with editing() as (pilot, editor):
        await send(pilot.app, keys, gaps_s)
        assert await becomes(pilot, editor, text)


async def test_undo_restores_what_was_before_typed_text(editing) -> None:
    async with editing() as (pilot, editor):
        editor.open_saved("x = 1\n")
        await send(pilot.app, NESTED, (0.05,))
        assert await becomes(pilot, editor, f"{NESTED}x = 1\n")
        await pilot.press(*["ctrl+z"] * 30)
        assert editor.text == "x = 1\n"


async def test_keys_after_a_burst_keep_their_order(editing) -> None:
    async with editing() as (pilot, editor):
        await send(pilot.app, TEXT)
        for name in ("up", "home", "delete"):
            pilot.app.post_message(Key(name, None))
        assert await becomes(pilot, editor, TEXT.replace("result", "esult"))
