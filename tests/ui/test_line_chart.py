"""The speedup chart: a logarithmic scale set by the last values, 1.0 visible, the last value beside its line."""

import pytest
from textual.app import App, ComposeResult

from sandbox.protocol.events import Interval
from screens.kernel.panes.answer_pane import bounds_of, rounds_words
from screens.themes import VARIABLE_DEFAULTS
from screens.widgets.line_chart import ChartLine, LineChart, Point, scale_of, ticks_of


class Page(App[None]):
    def get_theme_variable_defaults(self) -> dict[str, str]:
        return VARIABLE_DEFAULTS

    def compose(self) -> ComposeResult:
        yield LineChart()


def rows_of(app: App[None]) -> list[str]:
    return [row.plain for row in app.query_one(LineChart).render().split("\n", allow_blank=True)]


@pytest.mark.parametrize(
    ("last", "low", "high"),
    [((31.9, 31.0, 33.0), 0.7, 45.0), ((0.25, 0.24, 0.26), 0.2, 1.2), ((1.0, 0.99, 1.01), 0.95, 1.05)],
)
def test_wide_first_intervals_do_not_set_scale(last, low, high) -> None:
    first = [Interval(last[0], last[0] / 18, last[0] * 18)] * 20
    bottom, top = bounds_of([*first, *[Interval(*last)] * 20])
    assert low < bottom < min(1.0, last[1])
    assert max(1.0, last[2]) < top < high


def test_ticks_are_round_numbers_with_one_among_them() -> None:
    assert ticks_of(0.8, 60.0, 6) == [1.0, 2.0, 5.0, 10.0, 20.0, 50.0]
    assert ticks_of(0.95, 1.06, 4) == pytest.approx([0.95, 1.0, 1.05])
    assert 1.0 in ticks_of(0.001, 2000.0, 3)


async def test_one_is_visible_and_last_interval_beside_line() -> None:
    app = Page()
    async with app.run_test(size=(60, 12)) as pilot:
        points = tuple(Point(n, 31.9, 31.9 - 20 / n, 31.9 + 20 / n) for n in range(1, 41))
        scale = scale_of([31.4, 32.4])
        app.query_one(LineChart).plot([ChartLine("$accent", points)], until=40, scale=scale, axis=rounds_words)
        await pilot.pause()
        rows = rows_of(app)
        assert any(row.startswith(" 1.00 ┼┄┄") for row in rows)
        assert next(row for row in rows if "31.9×" in row).strip()[-5:] == "31.9×"
        assert rows[-1].split() == ["0", "40", "rounds"]
        assert len(rows) == 12


@pytest.mark.parametrize(("rows", "words"), [(4, "6 rounds"), (5, "")])
async def test_chart_without_axis_row_names_its_end(rows, words) -> None:
    app = Page()
    async with app.run_test(size=(60, rows)) as pilot:
        chart = app.query_one(LineChart)
        assert chart.end_words == ""
        points = (Point(1, 1.4, 0.8, 2.7), Point(6, 1.45, 0.78, 2.7))
        chart.plot([ChartLine("$accent", points)], until=6, scale=scale_of([0.78, 2.7]), axis=rounds_words)
        await pilot.pause()
        assert chart.end_words == words
        assert ("rounds" in rows_of(app)[-1]) == (not words)


async def test_two_distant_lines_are_seen_and_failures_crossed() -> None:
    app = Page()
    async with app.run_test(size=(50, 12)) as pilot:
        lines = [
            ChartLine("$accent", (Point(10, None), Point(20, 1.18)), holds=True),
            ChartLine("$warning", (Point(5, 2.0), Point(30, 48.9)), holds=True),
        ]
        app.query_one(LineChart).plot(lines, until=60, scale=scale_of([1.18, 2.0, 48.9]), axis=str)
        await pilot.pause()
        rows = rows_of(app)
        assert [("1.18×" in row, "48.9×" in row) for row in rows].count((True, False)) == 1
        assert any("48.9×" in row for row in rows[:3])
        assert "✗" in rows[9]
        assert next(n for n, row in enumerate(rows) if "1.18×" in row) < 11


async def test_higher_value_on_one_row_is_named_above() -> None:
    app = Page()
    async with app.run_test(size=(50, 12)) as pilot:
        lines = [
            ChartLine("$accent", (Point(1, 2.01),), holds=True),
            ChartLine("$warning", (Point(2, 2.0),), holds=True),
        ]
        app.query_one(LineChart).plot(lines, until=5, scale=scale_of([2.0, 10.0]), axis=str)
        await pilot.pause()
        assert [row[-8:].split()[-1] for row in rows_of(app) if "2.0" in row[-8:]] == ["2.01×", "2.00×"]


@pytest.mark.parametrize("size", [(60, 12), (30, 5), (20, 3), (8, 1)])
async def test_strange_numbers_and_small_places_do_no_harm(size) -> None:
    app = Page()
    async with app.run_test(size=size) as pilot:
        points = (Point(0, 0.0, 0.0, float("inf")), Point(1, 1e9, 0.0, 1e12), Point(2, 1.0, 1.0, 1.0))
        app.query_one(LineChart).plot([ChartLine("$accent", points)], until=0, scale=scale_of([0.0]), axis=str)
        await pilot.pause()
        assert len(rows_of(app)) <= size[1]
