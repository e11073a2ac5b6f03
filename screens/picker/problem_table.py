"""The table of problems: sortable, filtered by words and states. Typed digits move to the problem with that id."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import Binding, BindingType

from arena.words.headline import outcome_words
from screens import figures
from screens.widgets.tables import LEAST_TITLE, MOST_TITLE, PLAIN, Figure, FigureTable, has_word, room_beside

if TYPE_CHECKING:
    from arena.records.ranking import Standing
    from arena.records.run_record import RunRecord
    from problems.specification import Problem

DIGITS_WITHIN_S = 1.5
"""Digits typed within this time belong to one id."""


@dataclass(frozen=True)
class ProblemRow:
    """A problem with the user's, the house kernel's and the best result."""

    problem: Problem
    standing: Standing | None
    house: Standing | None = None
    best: RunRecord | None = None

    @property
    def state(self) -> str:
        """ "unsolved", "wrong unsolved", or "solved" and an outcome such as "faster": words for the filter."""
        standing = self.standing
        if standing is None:
            return "unsolved"
        if not standing.solved:
            return "wrong unsolved"
        return f"solved {outcome_words(standing.best.outcome) if standing.best else ''}"

    def matches(self, words: list[str]) -> bool:
        """Whether every word is in the state or, as `has_word` says, in the problem."""
        state = self.state.split()
        return all(word in state or (word not in STATES and has_word(self.problem, word)) for word in words)


STATES = {"solved", "unsolved", "wrong", "slower", "faster"}


def _standing_figure(standing: Standing | None) -> float:
    if standing is None:
        return -2.0
    if standing.best is not None and standing.best.interval is not None:
        return standing.best.interval.low
    return 0.0 if standing.last.passed and not standing.last.voided else -1.0


def ranks_words(worlds: list[int]) -> str:
    """ "1–8", or "2, 4, 8"."""
    if len(worlds) > 2 and worlds == list(range(worlds[0], worlds[-1] + 1)):
        return f"{worlds[0]}–{worlds[-1]}"
    return ", ".join(map(str, worlds))


TITLE, EMPTY = "problem", "–"


@dataclass(frozen=True)
class Column:
    """A column of the table: all of it that is not in the row's record."""

    name: str
    width: int
    """Its width; for results, and for the problem's title, the least one."""
    figure: Callable[[ProblemRow], Figure]
    order: Callable[[ProblemRow], Any]
    """What it is sorted by, before the problem's id."""
    wanted: int = 0
    """Minimum width of the title beside it; 0: it is always shown. A wider terminal never shows fewer columns."""
    result: bool = False
    """Whether it is left out while it is empty, and as wide as its words."""

    def cell(self, row: ProblemRow, width: int) -> Figure:
        words, style = self.figure(row)
        return figures.cut(words, width), style


COLUMNS = (
    Column("id", 4, lambda row: (f"{row.problem.id:>3}", "muted"), lambda row: 0),
    Column(TITLE, LEAST_TITLE, lambda row: (row.problem.title, PLAIN), lambda row: row.problem.title.lower()),
    Column("class", 7, lambda row: (row.problem.class_, PLAIN), lambda row: row.problem.class_, 80),
    Column(
        "collective", 15, lambda row: (", ".join(row.problem.collectives) or EMPTY, "muted"),
        lambda row: row.problem.collectives[:1], 80,
    ),
    Column("ranks", 10, lambda row: (ranks_words(row.problem.worlds), "muted"), lambda row: -len(row.problem.worlds), 80),
    Column(
        "you", 9, lambda row: figures.standing_words(row.standing), lambda row: -_standing_figure(row.standing), result=True
    ),
    Column(
        "house", 8, lambda row: figures.standing_words(row.house),
        lambda row: (-_standing_figure(row.house), row.problem.house_source is None), 60, True,
    ),
    Column(
        "best", 9, lambda row: figures.best_words(row.best),
        lambda row: -row.best.interval.low if row.best and row.best.interval else 0.0, 60, True,
    ),
    Column(
        "device", 7, lambda row: (f"{row.best.device}×{row.best.world}" if row.best else EMPTY, "muted"),
        lambda row: -row.best.world if row.best else 0, 60, True,
    ),
)  # fmt: skip
"""From left to right. Of two with the same `wanted`, the left one is more important."""


def columns_for(width: int, results: dict[str, int]) -> dict[Column, int]:
    """Returns the columns that fit into `width` cells, with their widths. A column has an empty cell on both sides.

    results: the width of every column of results that is not empty.
    """
    found, room = {}, room_beside(width, ())
    for column in sorted(COLUMNS, key=lambda column: column.wanted):
        cells = results.get(column.name, 0 if column.result else column.width)
        if column.wanted and room - cells - 2 < column.wanted:
            break
        if cells and column.name != TITLE:
            found[column] = cells
            room -= cells + 2
    title = max(LEAST_TITLE, min(room, MOST_TITLE))
    return {each: found.get(each, title) for each in COLUMNS if each in found or each.name == TITLE}


def result_widths(rows: list[ProblemRow]) -> dict[str, int]:
    """Returns the width of every column of results that is not empty."""
    found = {column: [column.figure(row)[0] for row in rows] for column in COLUMNS if column.result}
    return {column.name: max(column.width, *map(len, words)) for column, words in found.items() if {*words} - {EMPTY}}


class ProblemTable(FigureTable):
    """The problems with their results."""

    BINDING_GROUP_TITLE = "Problems"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select_cursor", "open", id="open_row"),
        Binding("j", "cursor_down", "down", show=False),
        Binding("k", "cursor_up", "up", show=False),
        Binding("g", "scroll_top", "first problem", show=False),
        Binding("G", "scroll_bottom", "last problem", show=False),
        Binding("left", "screen.beside('#category-pane')", "categories", show=False),
        Binding("0", "go_to_id('0')", "go to an id", show=False, key_display="0-9"),
        *(Binding(digit, f"go_to_id('{digit}')", "go to an id", show=False) for digit in "123456789"),
    ]

    sort_column = "id"
    rows_shown: Sequence[ProblemRow] = ()
    _digits, _typed_at = "", 0.0

    def show(self, rows: list[ProblemRow], width: int) -> None:
        """Fills the table for a pane of `width` cells; the cursor stays on its problem."""
        kept = self.current
        order = next(column.order for column in COLUMNS if column.name == self.sort_column)
        self.rows_shown = sorted(rows, key=lambda row: (order(row), row.problem.id))
        columns = columns_for(width, result_widths(rows))
        names = [column.name for column in columns]
        heads = [f"{name} ▾" if name == self.sort_column else name for name in names]
        cells = [[column.cell(row, room) for column, room in columns.items()] for row in self.rows_shown]
        self.fill(heads, cells, [*columns.values()], names)
        ids = [row.problem.id for row in self.rows_shown]
        if kept is not None and kept.id in ids:
            self.move_cursor(row=ids.index(kept.id), animate=False)

    def sort_by_next(self) -> None:
        """Sorts by the next column from the left that is shown; `show` then draws it."""
        shown = [key.value for key in self.columns]
        at = shown.index(self.sort_column) if self.sort_column in shown else -1
        self.sort_column = shown[(at + 1) % len(shown)] or "id"

    def action_go_to_id(self, digit: str) -> None:
        """Moves to the problem whose id is typed. Digits typed in quick succession form one id."""
        now = time.monotonic()
        self._digits = ((self._digits if now - self._typed_at < DIGITS_WITHIN_S else "") + digit)[-9:]
        self._typed_at = now
        for at, row in enumerate(self.rows_shown):
            if row.problem.id == int(self._digits):
                self.move_cursor(row=at)
                return

    @property
    def current(self) -> Problem | None:
        """The problem under the cursor."""
        if not self.rows_shown or self.cursor_row >= len(self.rows_shown):
            return None
        return self.rows_shown[max(self.cursor_row, 0)].problem
