"""The table of problems: sortable, filtered by words and states. Typed digits move to the problem with that id."""

from __future__ import annotations

import time
from collections.abc import Callable
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

WIDTHS = {"id": 4, "you": 9, "house": 8, "best": 9, "device": 7, "class": 7, "collective": 15, "ranks": 10}
"""Widths of the columns beside the title, in the order of their importance."""
COLUMNS = ("id", "problem", "class", "collective", "ranks", "you", "house", "best", "device")
WANTED = {"house": 60, "best": 60, "device": 60, "class": 80, "collective": 80, "ranks": 80}
"""Minimum width of the title beside each further column. A wider terminal never shows fewer columns."""
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

_SORT_KEYS: dict[str, Callable[[ProblemRow], Any]] = {
    "id": lambda row: row.problem.id,
    "problem": lambda row: row.problem.title.lower(),
    "class": lambda row: (row.problem.class_, row.problem.id),
    "collective": lambda row: (row.problem.collectives[:1], row.problem.id),
    "ranks": lambda row: (-len(row.problem.worlds), row.problem.id),
    "you": lambda row: (-_standing_figure(row.standing), row.problem.id),
    "house": lambda row: (-_standing_figure(row.house), row.problem.house_source is None, row.problem.id),
    "best": lambda row: (-row.best.interval.low if row.best and row.best.interval else 0.0, row.problem.id),
    "device": lambda row: (-row.best.world if row.best else 0, row.problem.id),
}


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


def columns_for(width: int, results: dict[str, int]) -> tuple[list[str], int]:
    """Returns (columns that fit, width of the title) for `width` cells. A column has an empty cell on both sides.

    results: the width of every column of results that is not empty.
    """
    shown = ["id", "problem", *(["you"] if "you" in results else [])]
    room = room_beside(width, [WIDTHS["id"], *([results["you"]] if "you" in results else [])])
    for name, wanted in WANTED.items():
        if name in ("house", "best", "device") and name not in results:
            continue
        if room - (cells := results.get(name, WIDTHS[name])) - 2 < wanted:
            break
        shown.append(name)
        room -= cells + 2
    return [name for name in COLUMNS if name in shown], max(LEAST_TITLE, min(room, MOST_TITLE))


def result_widths(rows: list[ProblemRow]) -> dict[str, int]:
    """Returns the width of every column of results that is not empty."""
    found = {
        "you": [figures.standing_words(row.standing)[0] for row in rows if row.standing],
        "house": [figures.standing_words(row.house)[0] for row in rows if row.house],
        "best": [figures.best_words(row.best)[0] for row in rows if row.best],
        "device": [f"{row.best.device}×{row.best.world}" for row in rows if row.best],
    }
    return {name: max(WIDTHS[name], *map(len, words)) for name, words in found.items() if words}


class ProblemTable(FigureTable):
    """The problems with their results."""

    BINDING_GROUP_TITLE = "Problems"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select_cursor", "open", id="open_row"),
        Binding("j", "cursor_down", "down", show=False),
        Binding("k", "cursor_up", "up", show=False),
        Binding("g", "scroll_top", "first problem", show=False),
        Binding("G", "scroll_bottom", "last problem", show=False),
        Binding("0", "go_to_id('0')", "go to an id", show=False, key_display="0-9"),
        *(Binding(digit, f"go_to_id('{digit}')", "go to an id", show=False) for digit in "123456789"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.sort_column = "id"
        self.rows_shown: list[ProblemRow] = []
        self._digits, self._typed_at = "", 0.0

    def show(self, rows: list[ProblemRow], width: int) -> None:
        """Fills the table for a pane of `width` cells; the cursor stays on its problem."""
        kept = self.current
        self.rows_shown = sorted(rows, key=_SORT_KEYS[self.sort_column])
        results = result_widths(rows)
        columns, title_width = columns_for(width, results)
        heads = [f"{name} ▾" if name == self.sort_column else name for name in columns]
        widths = [title_width if name == "problem" else results.get(name, WIDTHS.get(name)) for name in columns]
        cells = [[self._cell(row, name, title_width) for name in columns] for row in self.rows_shown]
        self.fill(heads, cells, widths, columns)
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
        self._digits = (self._digits if now - self._typed_at < DIGITS_WITHIN_S else "") + digit
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

    def _cell(self, row: ProblemRow, column: str, width: int) -> Figure:
        problem, best = row.problem, row.best
        match column:
            case "id":
                return f"{problem.id:>3}", "muted"
            case "problem":
                return figures.cut(problem.title, width), PLAIN
            case "class":
                return problem.class_, PLAIN
            case "collective":
                return figures.cut(", ".join(problem.collectives), WIDTHS["collective"]) or "–", "muted"
            case "ranks":
                return figures.cut(ranks_words(problem.worlds), WIDTHS["ranks"]), "muted"
            case "house":
                return figures.standing_words(row.house)
            case "best":
                return figures.best_words(best)
            case "device":
                return f"{best.device}×{best.world}" if best else "–", "muted"
        return figures.standing_words(row.standing)
