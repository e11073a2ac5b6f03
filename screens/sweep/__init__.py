"""The grid of a sweep: a row for each problem, a column for each player; it follows the journal."""

import asyncio
import time
from pathlib import Path
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import DataTable, Input

from arena.errors import why
from arena.records.json_lines import Follower
from arena.records.voids import NO_VOIDS, read_voids
from arena.sweep.grid import CellMark, Square, SweepGrid, holds_words
from arena.sweep.journal import JournalDamaged, journals, new_lines
from arena.sweep.underway import running_cells
from arena.words.headline import TOO_NOISY, brief_verdict, factor
from arena.words.untrusted_text import printable
from problems.specification import Problem
from screens import figures
from screens.actions import Scope, bindings
from screens.app_protocol import AppProtocol
from screens.base import BaseScreen
from screens.sweep.replay import CellReplay
from screens.widgets.key_line import KeyLine
from screens.widgets.tables import FigureTable, FilterInput, has_word
from screens.widgets.text_lines import PlainStatic, follow_width

STILL_S = 90.0
"""Seconds without a new line after which the sweep seems to have stopped."""


def square_words(square: Square | None, attempts: int) -> tuple[str, str]:
    """(words, theme colour) of a square: the best attempt, and how many of several are correct."""
    if square is None or not square.marks:
        return ("…", "accent") if square is not None and square.written else ("·", "muted")
    count = f" {square.passed}/{len(square.marks)}" if attempts > 1 and len(square.marks) > 1 else ""
    best = square.best
    assert best is not None
    if best.voided:
        return f"✗ voided{count}", "muted"
    if not best.passed:
        return f"✗ {brief_verdict(best.verdict)}{count}", "error"
    only = "¹" if best.one_size_only else ""
    if best.speedup is None:
        return f"✓ pass{only}{count}", "success"
    if best.outcome == TOO_NOISY:  # a figure would be read as the result
        return f"~ {best.outcome}{only}{count}", figures.outcome_style(best.outcome)
    sign = figures.outcome_sign(best.outcome)
    return f"{sign} {factor(best.speedup)}×{only}{count}", figures.outcome_style(best.outcome)


def standing_words(grid: SweepGrid, now: float) -> str:
    """ "132 of 261 results · 71 pass · $0.42 · updated 4 s ago"."""
    if not grid.sessions:
        return "empty"
    parts = [f"{grid.results} of {grid.total} results", f"{grid.passed} pass"]
    waiting = sum(square.waiting for square in grid.squares.values())
    if waiting:
        parts.append(f"{waiting} waiting for a verdict")
    if grid.usd:
        parts.append(f"${grid.usd:.2f}")
    if grid.sessions > 1:
        parts.append(f"{grid.sessions} sessions")
    since = max(0.0, now - grid.last_at)
    when = time.strftime("%d %b %H:%M", time.localtime(grid.last_at))
    parts.append(f"updated {since:.0f} s ago" if since < STILL_S else f"updated {when}")
    return " · ".join(parts)


FOLLOW_S = 0.5
EMPTY = "No sweep yet. F11, then n, starts one; it is shown here while it runs."
_CELL = 15
"""Width of a cell, in columns: the longest words of an outcome with its count."""
_STATES = ("solved", "unsolved", "wrong", "open")


class GridTable(FigureTable):
    """The table of cells. Its binding of enter shows in the key line."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select_cursor", "open", id="open_result")]


class SweepScreen(BaseScreen):
    """Follows a sweep, at first the newest; `n` goes to the one before."""

    CSS_PATH: ClassVar[Any] = [Path(__file__).with_name("screen.tcss")]
    SCOPE: ClassVar[Scope] = "sweep"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("sweep")]

    def __init__(self, parent_app: AppProtocol, name: str = "") -> None:
        """name: of the sweep that is shown first; empty: the newest."""
        super().__init__(parent_app)
        self._wanted = name
        self.grid = SweepGrid()
        self.paths: list[Path] = []
        self.number = 0
        """The index of the sweep shown; 0 is the newest."""
        self._voids = NO_VOIDS
        self._reader: Follower | None = None
        self._reading = False
        self._judging: list[tuple[int, str, str]] = []
        """See `running_cells`."""
        self._rows: list[Problem] = []
        self._columns: list[str] = []

    def compose(self) -> ComposeResult:
        with Horizontal(classes="head stacks"):
            yield PlainStatic("reading…", id="sweep-title")
            yield PlainStatic("", id="sweep-standing")
        words = "id, words, category, or: solved unsolved wrong open"
        yield FilterInput(words, id="sweep-filter", of="#sweep-grid")
        yield GridTable(id="sweep-grid", by_cell=True)
        yield PlainStatic("", id="sweep-cell")
        yield KeyLine()

    def on_mount(self) -> None:
        # titles have the room that the players leave
        follow_width(self.query_one(GridTable), lambda: self._draw_table(self._rows) if self._rows else None)
        self._follow()
        self.set_interval(FOLLOW_S, self._follow)

    async def _open(self) -> None:
        self._voids = await asyncio.to_thread(read_voids, self.services.paths.voids)
        self.paths = list(reversed(await asyncio.to_thread(journals, self.services.paths.sweeps)))
        self._reading = False
        grid = self.query_one("#sweep-grid")
        grid.display = bool(self.paths)
        if self.paths:
            self._begin(next((n for n, path in enumerate(self.paths) if path.stem == self._wanted), 0))
            grid.focus()
        else:
            self.query_one("#sweep-title", PlainStatic).update("Sweeps")
            self.query_one("#sweep-cell", PlainStatic).update(EMPTY)
        self.show_keys()

    def _begin(self, number: int) -> None:
        self.number = number
        self.grid = SweepGrid(self._voids)
        self._reader = Follower(self.paths[number])
        self._columns, self._rows = [], []
        self.query_one(GridTable).fill([], [])
        self._follow()

    def _follow(self) -> None:
        if not self._reading and (self._reader is not None or not self.paths):
            self._reading = True
            self.start(self._read(self._reader) if self._reader is not None else self._open(), "read")

    async def _read(self, reader: Follower) -> None:
        """Applies new lines of the journal. A long one is read in pieces, so that the screen stays responsive."""
        try:
            while lines := await asyncio.to_thread(new_lines, reader):
                if reader is not self._reader:
                    return
                for line in lines:
                    self.grid.apply(line)
                self._show()
            self._judging = await asyncio.to_thread(running_cells, self.services.paths.runs, reader.path)
            self._show_cells()
        except OSError as error:
            self._reader = None
            self.complain(f"{reader.path} cannot be read further: {why(error)}")
        except JournalDamaged:
            self._reader = None
            raise  # reported as an error; what was read before stays on the screen
        finally:
            self._reading = False

    # --- drawing -------------------------------------------------------------------------------------------

    @on(Input.Changed, "#sweep-filter")
    def _show(self) -> None:
        """Draws the table anew if rows or columns changed; else updates only the cells that changed."""
        rows = self._matching()
        if rows != self._rows or self.grid.players != self._columns:
            self._draw_table(rows)
        self._show_cells()
        self._show_cell()

    def _show_cells(self) -> None:
        table = self.query_one(GridTable)
        for y, problem in enumerate(self._rows):
            for x, player in enumerate(self._columns, 2):
                table.put(y, x, self._words(problem, player))
        name = self.paths[self.number].stem if self.paths else ""
        which = f"  {self.number + 1} of {len(self.paths)}" if len(self.paths) > 1 else ""
        self.query_one("#sweep-title", PlainStatic).update(f"sweep {printable(name)}{which}")
        self.query_one("#sweep-standing", PlainStatic).update(standing_words(self.grid, time.time()))

    def _draw_table(self, rows: list[Problem]) -> None:
        table = self.query_one(GridTable)
        self._rows, self._columns = rows, list(self.grid.players)
        cells = [[self._words(problem, player) for player in self._columns] for problem in rows]
        # A cell may get longer words later, but only of a verdict.
        table.fill_problems(rows, [figures.cut(printable(player), 22) for player in self._columns], cells, _CELL)
        table.move_cursor(column=max(table.cursor_column, 2))

    def _words(self, problem: Problem, player: str) -> tuple[str, str]:
        square, plan = self._square(problem, player), self.grid.plan
        if (problem.id, problem.slug, player) in self._judging and not (square and square.marks):
            return "▸ running", "accent"
        return square_words(square, plan.attempts if plan is not None else 1)

    def _square(self, problem: Problem, player: str) -> Square | None:
        return self.grid.squares.get((problem.slug, player))

    # --- the filter ----------------------------------------------------------------------------------------

    def _matching(self) -> list[Problem]:
        catalogue = self.services.catalogue
        assert catalogue is not None
        wanted = set(self.grid.slugs)
        words = self.query_one(FilterInput).words
        return [
            problem
            for problem in catalogue.problems
            if problem.slug in wanted and all(self._matches(problem, word) for word in words)
        ]

    def _matches(self, problem: Problem, word: str) -> bool:
        if word in _STATES:
            squares = [self._square(problem, player) for player in self.grid.players]
            tried = [square for square in squares if square is not None and square.marks]
            solved = any(square.passed for square in tried)
            wrong = any(square.passed < len(square.marks) for square in tried)
            return {"solved": solved, "unsolved": not solved, "wrong": wrong, "open": len(tried) < len(squares)}[word]
        return has_word(problem, word)

    @property
    def idle_actions(self) -> frozenset[str]:
        idle = super().idle_actions | ({"next_sweep"} if len(self.paths) < 2 else set())
        return idle if self.paths else idle | {"filter_sweep", "open_cell"}

    def action_filter_sweep(self) -> None:
        self.query_one(FilterInput).open()

    # --- cells ---------------------------------------------------------------------------------------------

    @property
    def _current(self) -> tuple[Problem, str, dict[int, CellMark]] | None:
        """The problem and the player of the cell under the cursor, and its attempts in their order."""
        at = self.query_one("#sweep-grid", DataTable).cursor_coordinate
        if 0 <= at.row < len(self._rows) and 2 <= at.column < 2 + len(self._columns):
            problem, player = self._rows[at.row], self._columns[at.column - 2]
            square = self._square(problem, player)
            return problem, player, dict(sorted(square.marks.items())) if square is not None else {}
        return None

    @on(DataTable.CellHighlighted, "#sweep-grid")
    def _show_cell(self) -> None:
        """Describes the cell under the cursor in the line below the table."""
        current = self._current
        if current is None:
            nothing = "No problem matches this filter. esc clears it." if self._columns else ""
            self.query_one("#sweep-cell", PlainStatic).update(nothing)
            return
        problem, player, marks = current
        said = "   ".join(
            (f"{n}: " if len(marks) > 1 else "")
            + mark.verdict
            + (holds_words(mark) if mark.passed else f" {mark.voided or mark.detail}")
            for n, mark in marks.items()
        )
        text = f"{problem.stem} · {player}   {said or 'no result yet'}"
        self.query_one("#sweep-cell", PlainStatic).update(printable(text).replace("\n", " "))

    @on(DataTable.CellSelected, "#sweep-grid")
    def action_open_cell(self) -> None:
        if (current := self._current) is None:
            return
        problem, player, marks = current
        if marks:
            self.app.push_screen(CellReplay(self.services, problem, player, [*marks.values()]))
        else:
            self.say(f"{printable(player)} has no result here yet")

    def action_next_sweep(self) -> None:
        if len(self.paths) < 2:
            self.say("There is no other sweep")
        else:
            self._begin((self.number + 1) % len(self.paths))

    def action_leave_sweep(self) -> None:
        if not self.query_one(FilterInput).close():
            self.dismiss()
