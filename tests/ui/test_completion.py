"""Completion of the kit's names in the editor, and the signature at the cursor."""

import pytest
from textual.events import Key
from textual.widgets import OptionList

from screens.widgets.completion import Completion, name_at, names_for, signature_words

SYMM = ("s", "y", "m", "m", "full_stop")


def names(text: str) -> list[str]:
    lines = text.split("\n")
    return [name.name for name in names_for(lines, (len(lines) - 1, len(lines[-1])))[1]]


def test_names_start_as_what_is_written() -> None:
    assert {"stage", "peers", "barrier"} <= set(names("x = symm."))
    assert names("x = symm.st") == ["stage"]
    assert names("symm.rank") == ["rank", "ranks"]
    assert names("cuda.comp") == ["compile", "compile_cubin"]


@pytest.mark.parametrize(
    "text",
    [
        "torch.cuda.",
        "my_symm.",
        "symm",
        "symm.nothing",
        "from torch import cuda, nn\ncuda.",
        "import torch.cuda as cuda\ncuda.",
    ],
)
def test_names_of_others_are_left_alone(text: str) -> None:
    assert names(text) == []


def test_the_kits_own_import_is_the_kits() -> None:
    assert names("from sandbox.kit import cuda, symm\ncuda.") != []


def test_the_call_around_the_cursor_is_found() -> None:
    lines = ["y = f(symm.out((4,", "    torch.empty(3)", "    ), x)", "symm.barrier()"]

    def found(row: int, column: int) -> str:
        name = name_at(lines, (row, column))
        return name.name if name is not None else ""

    assert found(0, 3) == found(0, 5) == ""
    assert found(0, 8) == found(0, 15) == found(0, 18) == found(1, 10) == found(2, 8) == "out"
    assert found(2, 9) == ""
    assert found(3, 13) == "barrier"
    assert found(3, 14) == ""


def test_signature_is_as_full_as_there_is_room() -> None:
    name = name_at(["symm.stage"], (0, 5))
    assert name is not None
    assert signature_words(name, 200).startswith("symm.stage(x: torch.Tensor, tag: str | None=None) -> torch.Tensor · ")
    assert signature_words(name, 40) == "symm.stage(x, tag=None)"
    assert signature_words(name, 12) == "symm.stage(…"


async def test_dot_lists_names_and_enter_or_tab_takes(editing, until) -> None:
    async with editing() as (pilot, editor):
        await pilot.press(*SYMM)
        assert editor.completion.is_open
        await pilot.press("s")
        assert [name.name for name in editor.completion.names] == ["signal", "stage", "sub"]
        await pilot.press("down", "enter")
        assert editor.text == "symm.stage"
        assert not editor.completion.is_open
        await pilot.press("enter", *SYMM, "w", "o", "tab")
        assert editor.text == "symm.stage\nsymm.world"
        await pilot.press("ctrl+z")
        assert editor.text == "symm.stage\nsymm.wo"
        for key in "\nsymm.wo\t":  # they come together
            pilot.app.post_message(Key({"\n": "enter", ".": "full_stop", "\t": "tab"}.get(key, key), key))
        await until(pilot, lambda: editor.text == "symm.stage\nsymm.wo\nsymm.world")


async def test_up_goes_round_and_choice_is_explained(editing) -> None:
    async with editing() as (pilot, editor):
        await pilot.press(*SYMM, "s", "up")
        shown = pilot.app.query_one(Completion)
        assert shown.query_one(OptionList).highlighted == 2
        assert "their own slots and epochs" in str(shown.query_one("PlainStatic").render())
        await pilot.press("pageup")
        assert editor.completion.chosen.name == "signal"


async def test_a_closed_list_takes_no_key(editing) -> None:
    async with editing() as (pilot, editor):
        await pilot.press(*SYMM, "escape")
        assert not editor.completion.is_open
        assert not pilot.app.query_one(Completion).display
        await pilot.press("p", "enter", "tab", "up", "down", "x")
        assert editor.text == "symm.p\n    x"
        await pilot.press("enter", *SYMM, *"out", "enter")  # the name is complete: enter ends the line
        assert editor.text.endswith("symm.out\n    ")


@pytest.mark.parametrize("text", ["# symm", '"symm', 'S = r"""\n__global__ void f(int x) {\nsymm'])
async def test_comments_strings_and_cuda_have_no_list(editing, text: str) -> None:
    async with editing() as (pilot, editor):
        editor.open_saved(text)
        editor.move_cursor(editor.document.end)
        await pilot.press("full_stop")
        assert not editor.completion.is_open


async def test_list_goes_with_word_and_focus(editing) -> None:
    async with editing() as (pilot, editor):
        await pilot.press(*SYMM, "s", "backspace")
        assert len(editor.completion.names) > 3
        await pilot.press("backspace")
        assert not editor.completion.is_open
        await pilot.press("full_stop")
        pilot.app.set_focus(None)
        await pilot.pause()
        assert not editor.completion.is_open


@pytest.mark.parametrize("height", [12, 24])
@pytest.mark.parametrize("row", [0, 10, 60])
async def test_list_leaves_line_of_cursor_in_sight(editing, height: int, row: int) -> None:
    async with editing((60, height)) as (pilot, editor):
        editor.open_saved("\n" * 60)
        editor.move_cursor((row, 0))
        await pilot.press(*SYMM)
        region = pilot.app.query_one(Completion).region
        assert region.bottom <= height
        assert region.y >= 0
        assert not region.y <= editor.cursor_screen_offset.y < region.bottom
        assert 0 <= region.x <= region.right <= 60


@pytest.mark.slow
async def test_escape_closes_list_before_it_leaves_kernel(open_app, type_kernel, until, screen_text) -> None:
    async with open_app(problem="13") as (app, pilot):
        editor = app.screen.editor
        type_kernel(app.screen, "symm.stage(x)\nsymm.")
        editor.move_cursor((1, 5))
        await pilot.press("ctrl+@")
        assert editor.completion.is_open
        await until(pilot, lambda: "peers(t)" in screen_text(app))
        await pilot.press("escape")
        assert not editor.completion.is_open
        assert not app.screen.was_pressed("cancel")
        editor.move_cursor((0, 11))
        await until(pilot, lambda: "symm.stage(x: torch.Tensor, tag: str" in screen_text(app))
        await pilot.press("ctrl+@")
        await until(pilot, lambda: any("after a module of the kit" in said.message for said in app._notifications))
