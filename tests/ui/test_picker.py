"""The start screen: categories, filter, sorting, card."""

import asyncio
import threading
import time

import msgspec
import pytest
from stored_runs import record
from textual.app import App
from textual.widgets import Input, OptionList

import screens.terminal_app
from arena.records.index import Store
from arena.records.ranking import Standing
from arena.records.run_record import RunRecord
from problems.catalogue import HOME
from problems.specification import load_problem
from screens.app import ArenaApp
from screens.kernel.kernel_session import KernelSession
from screens.kernel.screen import KernelScreen
from screens.picker import PickerScreen
from screens.picker.problem_table import ProblemRow, columns_for


def stored(player: str, speedup: float) -> RunRecord:
    """A finished run of problem 13."""
    return record(player, player, speedup, problem_id=13)


def ids(app) -> list[int]:
    return [row.problem.id for row in app.picker.table.rows_shown]


async def test_problems_and_categories_are_listed_and_counted(open_app, until, go_to, screen_text) -> None:
    async with open_app() as (app, pilot):
        assert ids(app) == [1, 2, 13]
        assert app.focused is app.picker.table
        options = app.screen.query_one("#categories", OptionList)
        await go_to(pilot, options, "left")
        await go_to(pilot, app.picker.table, "right")
        assert [option.id for option in options.options] == ["all", "collective", "tensor"]
        await until(pilot, lambda: "solved 0 of 3 · faster 0" in screen_text(app) and "· best" not in screen_text(app))
        await until(pilot, lambda: "Every rank holds a tensor" in screen_text(app))
        app.picker.problems[0].also.append("tensor")
        app.picker._show_categories()
        categories = app.screen.query_one("#categories", OptionList)
        await until(pilot, lambda: categories.content_size.width)  # they are mounted after the first paint
        for number, option in enumerate(categories.options):
            categories.highlighted = number
            shown = "" if option.id == "all" else option.id
            await until(pilot, lambda shown=shown: app.picker.category == shown)
            assert int(str(option.prompt).split()[1]) == len(ids(app)), option.id
            assert len(str(option.prompt)) <= categories.content_size.width  # on one line
            if shown:
                # `pkb-arena list` prints these below the category's name.
                listed = app.services.catalogue.categories[shown]
                assert ids(app) == [problem.id for problem in listed]
        app.picker.problems[0].also.remove("tensor")


@pytest.mark.slow
async def test_keys_wait_for_the_list_of_problems(services, until, monkeypatch) -> None:
    read, found = services.read_catalogue, threading.Event()
    monkeypatch.setattr(screens.terminal_app, "PREPARING_S", 60.0)
    monkeypatch.setattr(services, "read_catalogue", lambda: read() if found.wait(60) else None)
    app = ArenaApp(services)
    try:
        async with app.run_test() as pilot:
            await until(pilot, lambda: app._in_preparation)
            await pilot.press("slash", "1", "3")
            assert not app.opened.is_set()
            found.set()
            await until(pilot, lambda: isinstance(app.focused, Input) and app.focused.value == "13")
            await until(pilot, lambda: app.picker.table.row_count == 1)
    finally:
        found.set()
        await services.close()
    assert app.faults == []


@pytest.mark.slow
async def test_house_and_best_have_columns_where_possible(open_app, until, go_to, services, screen_text) -> None:
    async with open_app(size=(180, 30)) as (app, pilot):
        assert not {"you", "house", "best", "device"} & {key.value for key in app.picker.table.columns}
        services.store.record(stored("house", 1.5))
        await app.refresh_picker()
        await until(pilot, lambda: "▲ 1.50×" in screen_text(app))
        names = [key.value for key in app.picker.table.columns]
        assert names[-4:] == ["problem", "house", "best", "device"]  # no own result: no column
        row = next(line for line in screen_text(app).splitlines() if "Row-parallel GEMM" in line)
        assert row.count("▲ 1.50×") == 2  # in the columns house and best
        assert "cpu×2" in row
        app.picker.table.move_cursor(row=2)
        await until(pilot, lambda: "house, 2 ranks on cpu" in screen_text(app))
        services.store.record(msgspec.structs.replace(stored("house", 1.5), run_id="twin", player="agent:twin"))
        await app.refresh_picker()
        await until(pilot, lambda: "median of 2 runs" in screen_text(app))
        services.store.record(record("slower", "you", 0.8, problem_id=2, outcome="slower"))
        await pilot.press("f1", "escape")  # the list is read again when it comes back
        await until(pilot, lambda: "solved 1 of 3 · faster 0" in screen_text(app) and "· best" not in screen_text(app))
        services.store.record(stored("you", 1.5))
        services.store.record(record("other", "you", 1.2, problem_id=1))
        await go_to(pilot, "solved 3 of 3 · faster 2 · best ▲ 1.50×", "f1", "escape")
        await until(pilot, lambda: "▲ faster  ≈ same speed  ~ too noisy" in screen_text(app))
        assert "you" in {key.value for key in app.picker.table.columns}


@pytest.mark.parametrize("name", ["standings", "history"])
async def test_earlier_reading_of_results_ends_before_later_one(services, monkeypatch, name) -> None:
    await services.read()
    session = KernelSession(services, services.catalogue.find("13"))
    again = services.refresh_standings if name == "standings" else session.read_records
    read, reads = getattr(Store, name), threading.Lock()

    def alone(*asked: object) -> object:
        assert reads.acquire(blocking=False)
        time.sleep(0.05)
        reads.release()
        return read(*asked)

    monkeypatch.setattr(Store, name, alone)
    await asyncio.gather(again(), again())
    await services.close()


@pytest.mark.slow
async def test_the_filter_matches_words_classes_and_states(open_app, until, go_to, screen_text) -> None:
    async with open_app() as (app, pilot):
        await pilot.press("slash")
        for typed, found in (
            ("gemm", [13]),
            ("13", [13]),
            ("1", [1]),
            ("all_gather", [2]),
            ("class:c", [1, 2, 13]),
            ("unsolved", [1, 2, 13]),
            ("solved", []),
            ("collective sum", [1]),
        ):
            app.screen.query_one("#filter", Input).value = typed
            await until(pilot, lambda found=found: ids(app) == found)
        app.screen.query_one("#filter", Input).value = "zzz"
        await until(pilot, lambda: "No problem matches this filter. esc clears it." in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: ids(app) == [1, 2, 13])
        app.picker.table.move_cursor(row=2)
        await pilot.press("slash", *"all")
        app.focused.insert_text_at_cursor("l" * 100)  # each key of a long text would take longer
        assert (app.focused.id, app.focused.value) == ("filter", "all")
        await go_to(pilot, app.picker.table, "enter")
        assert app.picker.table.current.id == 1
        assert not app.picker.table.show_horizontal_scrollbar
        app.picker.query_one("#categories", OptionList).highlighted = 2
        await pilot.press("slash", *" sum")
        words = "in tensor; 1 of other categories do. esc clears it."
        await until(pilot, lambda: words in " ".join(screen_text(app).split()))


def test_the_filter_has_the_words_of_the_outcomes() -> None:
    best = msgspec.structs.replace(stored("you", 1.0), outcome="even")
    row = ProblemRow(load_problem(HOME / "tensor/gemm_allreduce"), Standing(13, 1, True, best, best))
    assert row.matches(["same", "speed"])


async def test_enter_opens_problem_and_twice_escape_comes_back(open_app, until, go_to, screen_text) -> None:
    async with open_app() as (app, pilot):
        await pilot.press("space")
        await until(pilot, lambda: "Signature" in screen_text(app))  # of the whole card
        await go_to(pilot, PickerScreen, "escape")
        await go_to(pilot, KernelScreen, "down", "down", "enter")
        assert app.screen.problem.id == 13
        await go_to(pilot, PickerScreen, "escape", "escape")


async def test_letters_and_digits_move_the_cursor(open_app, until, go_to) -> None:
    async with open_app() as (app, pilot):
        table = app.picker.table
        for key, at in (("j", 2), ("k", 1), ("G", 13), ("g", 1)):
            await pilot.press(key)
            await until(pilot, lambda at=at: table.current.id == at)
        await pilot.press("down", "s")  # the cursor stays on its problem
        await until(pilot, lambda: table.sort_column == "problem")
        assert table.current.id == 2
        await pilot.click(table, offset=(2, 0))  # the head of a column
        await until(pilot, lambda: table.sort_column == "id")
        await pilot.click(table, offset=(10, 0))
        await until(pilot, lambda: table.sort_column == "problem")
        await go_to(pilot, KernelScreen, "1", "3", "enter")
        assert app.screen.problem.id == 13
        for digit in "1" * 5000:  # of a paste; Python reads no number of so many
            table.action_go_to_id(digit)


def test_columns_of_results_fit_every_width() -> None:
    results = {"you": 14, "house": 12, "best": 9, "device": 7}
    for width in range(60, 240):
        cells = columns_for(width, results).values()
        assert sum(cells) + 2 * len(cells) < width  # a cell on both sides of each, and the scrollbar


async def test_index_that_cannot_be_used_leaves_problems(open_app, until, services, screen_text) -> None:
    services.paths.database.mkdir(parents=True)
    async with open_app() as (app, pilot):
        assert ids(app) == [1, 2, 13]
        await until(pilot, lambda: "Results are not shown: cannot open" in screen_text(app))
        await pilot.press("b")
        await until(pilot, lambda: "cannot open" in str(app.screen.query_one("#board-note").visual))
        services.paths.database.rmdir()
        await pilot.press("escape")
        await until(pilot, lambda: "Results are not shown" not in screen_text(app))
        services.store.record(stored("you", 1.5))


async def test_first_picture_is_not_delayed(open_app, monkeypatch) -> None:
    delays: list[str] = []
    monkeypatch.setattr(App, "delay_update", lambda app, delay=0.05: delays.append(app.screen.name))
    async with open_app() as (_, pilot):
        assert delays == []
        await pilot.resize_terminal(50, 30)
        assert delays
