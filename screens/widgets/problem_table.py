"""The table of problems: sortable, filtered by words and states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import DataTable

from sandbox.events import Interval
from sandbox.verdict import Verdict
from screens import figures

if TYPE_CHECKING:
    from arena.store import Standing
    from problems.specification import Problem

WIDTHS = {"id": 4, "problem": 0, "you": 9, "class": 7, "collective": 15, "ranks": 10}
"""Columns in the order of their importance; the title takes what is left."""
COLUMNS = ("id", "problem", "class", "collective", "ranks", "you")
TITLE_WIDTH = (12, 36, 64)
"""The least; what it has before the less important columns get anything; the most."""


@dataclass(frozen=True)
class Row:
    """A problem and how the person stands with it."""

    problem: Problem
    standing: Standing | None

    @property
    def state(self) -> str:
        """ "unsolved", "wrong", "slower", "even" or "faster": words that the filter knows."""
        standing = self.standing
        if standing is None:
            return "unsolved"
        if not standing.solved:
            return "wrong unsolved"
        outcome = standing.best.outcome if standing.best else ""
        return f"solved {outcome}"

    @property
    def you(self) -> tuple[str, str]:
        """(words, theme colour) of the best result."""
        standing = self.standing
        if standing is None:
            return "–", "muted"
        best = standing.best
        if best is not None and best.speedup is not None and best.low is not None and best.high is not None:
            interval = Interval(median=best.speedup, low=best.low, high=best.high)
            return figures.speedup_words(interval, best.outcome), figures.outcome_style(best.outcome)
        if standing.solved:
            return "✓ correct", "success"
        verdict = standing.last.verdict
        return figures.verdict_words(verdict).lower(), figures.verdict_style(verdict)

    def matches(self, words: list[str]) -> bool:
        """Every word is in the id, names, title, origin, domain, class, collectives or state."""
        problem = self.problem
        state = self.state.split()
        text = " ".join(
            [str(problem.id), problem.slug, problem.title, problem.origin, problem.domain, problem.category,
             *problem.also, *problem.collectives, f"class {problem.class_}", f"class:{problem.class_}"]
        ).lower()  # fmt: skip
        return all(word in state if word in STATES else word in text for word in words)


STATES = {"solved", "unsolved", "wrong", "slower", "even", "faster"}

_SORT_KEYS: dict[str, Callable[[Row], Any]] = {
    "id": lambda row: row.problem.id,
    "problem": lambda row: row.problem.title.lower(),
    "class": lambda row: (row.problem.class_, row.problem.id),
    "collective": lambda row: (row.problem.collectives[:1], row.problem.id),
    "ranks": lambda row: (-len(row.problem.worlds), row.problem.id),
    "you": lambda row: (-_standing_figure(row), row.problem.id),
}


def _standing_figure(row: Row) -> float:
    standing = row.standing
    if standing is None:
        return -2.0
    if standing.best is not None and standing.best.speedup is not None:
        return standing.best.speedup
    return 0.0 if standing.last.verdict is Verdict.PASS else -1.0


def ranks_words(worlds: list[int]) -> str:
    """ "1–8", or "2, 4, 8"."""
    if len(worlds) > 2 and worlds == list(range(worlds[0], worlds[-1] + 1)):
        return f"{worlds[0]}–{worlds[-1]}"
    return ", ".join(map(str, worlds))


def columns_for(width: int) -> tuple[list[str], int]:
    """(columns that fit, width of the title) in `width` cells; a column has a cell of air on both sides."""
    least, wanted, most = TITLE_WIDTH
    shown = ["id", "problem", "you"]
    room = width - 2 - sum(WIDTHS[name] + 2 for name in shown)  # 2 for the scrollbar
    for name in ("class", "collective", "ranks"):
        if room - WIDTHS[name] - 2 < wanted:
            break
        shown.append(name)
        room -= WIDTHS[name] + 2
    return [name for name in COLUMNS if name in shown], max(least, min(room, most))


class ProblemTable(DataTable[Text]):
    """Rows are keyed by the problem's id."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select_cursor", "open", id="open_row")]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(cursor_type="row", id=id, zebra_stripes=False)
        self.sort_column = "id"
        self.rows_shown: list[Row] = []

    def show(self, rows: list[Row], width: int) -> None:
        """Fills the table for a pane of `width` cells; the cursor stays on its problem."""
        kept = self.current
        self.rows_shown = sorted(rows, key=_SORT_KEYS[self.sort_column])
        columns, title_width = columns_for(width)
        self.clear(columns=True)
        for name in columns:
            mark = " ▾" if name == self.sort_column else ""
            self.add_column(Text(name + mark), key=name, width=WIDTHS[name] or title_width)
        for row in self.rows_shown:
            self.add_row(*(self._cell(row, name, title_width) for name in columns), key=str(row.problem.id))
        ids = [row.problem.id for row in self.rows_shown]
        if kept is not None and kept.id in ids:
            self.move_cursor(row=ids.index(kept.id), animate=False)

    def sort_by_next(self) -> None:
        """Sorts by the next column from the left; `show` then draws it."""
        self.sort_column = COLUMNS[(COLUMNS.index(self.sort_column) + 1) % len(COLUMNS)]

    @property
    def current(self) -> Problem | None:
        """The problem under the cursor."""
        if not self.rows_shown or self.cursor_row >= len(self.rows_shown):
            return None
        return self.rows_shown[max(self.cursor_row, 0)].problem

    def _cell(self, row: Row, column: str, width: int) -> Text:
        problem = row.problem
        match column:
            case "id":
                return Text(f"{problem.id:>3}", style=self._colour("muted"))
            case "problem":
                title = problem.title
                return Text(title if len(title) <= width else title[: width - 1] + "…", no_wrap=True)
            case "class":
                return Text(problem.class_)
            case "collective":
                return Text(
                    ", ".join(problem.collectives)[:15] or "–", style=self._colour("muted"), no_wrap=True
                )
            case "ranks":
                return Text(ranks_words(problem.worlds)[:10], style=self._colour("muted"))
        words, colour = row.you
        return Text(words, style=self._colour(colour))

    def _colour(self, name: str) -> str:
        """A theme variable in Rich's words, which lack Textual's prefix for the terminal's own colours."""
        return self.app.theme_variables.get(name, "").removeprefix("ansi_")
