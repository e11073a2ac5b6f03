"""The start screen: categories, filter, sorting, card."""

from textual.widgets import Input, OptionList

from screens.arena import ArenaScreen
from screens.dialogs import Choose
from screens.picker import PickerScreen


def ids(app) -> list[int]:
    return [row.problem.id for row in app.picker.table.rows_shown]


async def test_all_problems_are_listed_with_their_categories(open_app, until, screen_text) -> None:
    async with open_app() as (app, pilot):
        assert ids(app) == [1, 2, 13]
        options = app.screen.query_one("#categories", OptionList)
        assert [option.id for option in options.options] == ["all", "collective", "tensor"]
        await until(pilot, lambda: "solved 0 of 3" in screen_text(app))
        assert "Every rank holds a tensor" in screen_text(app)


async def test_a_category_narrows_the_table(open_app, until) -> None:
    async with open_app() as (app, pilot):
        app.screen.query_one("#categories", OptionList).highlighted = 2
        await until(pilot, lambda: ids(app) == [13])


async def test_the_filter_matches_words_classes_and_states(open_app, until) -> None:
    async with open_app() as (app, pilot):
        await pilot.press("slash")
        for typed, found in (
            ("gemm", [13]),
            ("13", [13]),
            ("all_gather", [2]),
            ("class:c", [1, 2, 13]),
            ("unsolved", [1, 2, 13]),
            ("solved", []),
            ("collective sum", [1]),
        ):
            app.screen.query_one("#filter", Input).value = typed
            await until(pilot, lambda found=found: ids(app) == found)
        await pilot.press("escape")
        await until(pilot, lambda: ids(app) == [1, 2, 13])


async def test_nothing_found_says_what_to_do(open_app, until, screen_text) -> None:
    async with open_app() as (app, pilot):
        await pilot.press("slash", *"zzz")
        await until(pilot, lambda: "No problem fits this filter; escape clears it." in screen_text(app))


async def test_sorting_keeps_the_cursor_on_its_problem(open_app, until) -> None:
    async with open_app() as (app, pilot):
        await pilot.press("down", "s")
        await until(pilot, lambda: app.picker.table.sort_column == "problem")
        assert app.picker.table.current.id == 2


async def test_enter_opens_the_problem_and_twice_escape_comes_back(open_app, until) -> None:
    async with open_app() as (app, pilot):
        await pilot.press("down", "down", "enter")
        await until(pilot, lambda: isinstance(app.screen, ArenaScreen))
        assert app.screen.problem.id == 13
        await pilot.press("escape", "escape")
        await until(pilot, lambda: isinstance(app.screen, PickerScreen))


async def test_the_whole_card_can_be_read(open_app, until, screen_text) -> None:
    async with open_app() as (app, pilot):
        await pilot.press("space")
        await until(pilot, lambda: "Signature" in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, PickerScreen))


async def test_a_template_is_put_into_the_editor_unsaved(open_app, until) -> None:
    async with open_app() as (app, pilot):
        await pilot.press("n")
        await until(pilot, lambda: isinstance(app.screen, Choose))
        await pilot.press("end", "enter")
        await until(pilot, lambda: isinstance(app.screen, ArenaScreen) and app.screen.editor.dirty)
        assert "def solution(" in app.screen.editor.text
        assert app.screen.session.path.read_text() == app.screen.problem.baseline_source
