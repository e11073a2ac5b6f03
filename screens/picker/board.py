"""The board: results of every player side by side, by problem, by category and by how much faster they are."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Input

from arena.board import definitions
from arena.board.definitions import BOUND_WORDS
from arena.board.tables import bound_words, share_words
from arena.errors import ArenaError
from arena.words.untrusted_text import printable
from problems.catalogue import Catalogue
from problems.specification import Problem
from screens import figures
from screens.dialogs import Dialog
from screens.dialogs.runs import RunsDialog
from screens.services import Services
from screens.widgets.key_line import entitle
from screens.widgets.tables import (
    LEAST_TITLE,
    MOST_TITLE,
    PLAIN,
    Figure,
    FigureTable,
    FilterInput,
    has_word,
    room_beside,
)
from screens.widgets.text_lines import PlainStatic, follow_width

PROBLEMS, CATEGORIES, CURVE, BOUND = "by problem", "by category", "fast_p", "bound"
VIEWS = (PROBLEMS, CATEGORIES, CURVE, BOUND)
_NOTES = {
    PROBLEMS: "The best correct kernel of each player on this machine, by the clock of its headline. Other sizes: a faster kernel"
    " is also faster at all, some or none. Settings with too noisy times do not count.",
    CATEGORIES: "Solved · faster than the baseline by the whole interval; every problem counts once. Behind the line: published,"
    " best of three attempts, on another machine and with other counts of problems.",
    CURVE: "Share of all problems with a correct kernel more than p times as fast as the baseline."
    " Behind the line: published, one attempt, on another machine.",
    BOUND: f"Best correct kernels. {' '.join(BOUND_WORDS.split())}",
}
OTHER_SIZES = "other sizes"
"""The column beside a player whose faster kernels were judged at other sizes."""
_METER, _ID = 8, 3
"""Columns of a meter, and of an id."""


class BoardDialog(Dialog[Problem | None]):
    """Dismisses with the problem to open."""

    CSS_PATH: ClassVar[Any] = [*Dialog.CSS_PATH, Path(__file__).with_name("board.tcss")]
    TO_READ = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f3,v", "next_view", "next view", id="next_view"),
        Binding("slash", "filter", "filter", id="filter"),
        Binding("x", "results", "all results of the problem, to void"),
    ]

    def __init__(self, services: Services) -> None:
        super().__init__()
        self.services = services
        self.view = PROBLEMS
        self.players: list[str] = []
        self.standings: dict[str, definitions.Standings] = {}
        self._published = definitions.Published("", {}, [])
        self._known = False
        """Whether all data for the table has been read."""
        self._listed: list[Problem] = []
        """The problems of the rows, in the view by problem."""

    def compose(self) -> ComposeResult:
        keys = f"{self.key_words('next_view')} view · {self.key_words('filter')} filter · enter opens · x voids · esc"
        with self.frame("Board", keys, classes="large"):
            yield PlainStatic("reading…", id="board-note")
            yield FilterInput("id, words or category of problems", id="board-filter", of="#board")
            yield FigureTable(id="board")

    def on_mount(self) -> None:
        follow_width(self._board, self._show)
        self._read_again()

    async def _read(self) -> None:
        try:
            store = self.services.store
            players = await asyncio.to_thread(store.players)
            self.standings = {player: await asyncio.to_thread(store.standings, player) for player in players}
        except ArenaError as error:
            self.query_one("#board-note", PlainStatic).update(error.one_line)
            return
        self.players = definitions.order_of(players)
        self._published = await asyncio.to_thread(definitions.read_published)
        self._known = True
        self.query_one("#board").focus()
        self._show()

    @property
    def _catalogue(self) -> Catalogue:
        assert self.services.catalogue is not None
        return self.services.catalogue

    # --- drawing -------------------------------------------------------------------------------------------

    def _show(self) -> None:
        if not self._known:
            return
        table = self._board
        table.fixed_columns = 2
        shown = " · ".join(f"▸{view}" if view == self.view else view for view in VIEWS)
        entitle(self.query_one(".dialog"), f"Board · {shown}")
        note = _NOTES[self.view]
        if self.view == PROBLEMS and not self.players:
            note = f"No results yet. Press {self.key_words('open')} on a problem, then {self.key_words('save')}."
        table.display = bool(self.players) or self.view != PROBLEMS
        if self.view in (CATEGORIES, CURVE):
            note += f" ({self._published.source})"
        about = self.query_one("#board-note", PlainStatic)
        about.update(note)
        about.set_class(table.display, "above")
        if self.view == PROBLEMS:
            self._show_problems()
            return
        rows = {CATEGORIES: self._categories, CURVE: self._curve, BOUND: self._bounds}[self.view]()
        published = [model.name for model in self._published.model] if self.view != BOUND else []
        head = _row("p" if self.view == CURVE else "category", "", map(printable, self.players), published)
        table.fill([words for words, _ in head], rows)

    @property
    def _board(self) -> FigureTable:
        return self.query_one(FigureTable)

    def _show_problems(self) -> None:
        """Shows the problems that any player has a result for."""
        tried = {number for held in self.standings.values() for number in held}
        words = self.query_one(FilterInput).words
        self._listed = [
            problem
            for problem in self._catalogue.problems
            if problem.id in tried and all(has_word(problem, word) for word in words)
        ]
        heads: list[str] = []
        columns: list[list[Figure]] = []
        for player in self.players:
            held = [self.standings[player].get(problem.id) for problem in self._listed]
            heads.append(printable(player))
            columns.append([figures.standing_words(each) for each in held])
            if any(each is not None and each.holds for each in held):
                heads.append(OTHER_SIZES)
                columns.append([figures.holds_words(each) for each in held])
        widths = [
            max(len(head), *(len(words) for words, _ in cells), 0) for head, cells in zip(heads, columns, strict=True)
        ]
        width = max(LEAST_TITLE, min(room_beside(self._board.size.width, [_ID, *widths]), MOST_TITLE))
        rows = [
            [(f"{each.id:>3}", "muted"), (figures.cut(each.title, width), PLAIN), *(column[at] for column in columns)]
            for at, each in enumerate(self._listed)
        ]
        self._board.fill(["id", "problem", *heads], rows, [_ID])

    @property
    def _groups(self) -> list[tuple[str, list[Problem]]]:
        """All problems, then those of each category, with their names."""
        return [("all", self._catalogue.problems), *self._catalogue.categories.items()]

    def _categories(self) -> list[list[Figure]]:
        rows = []
        for name, problems in self._groups:
            ours = [_tally_words(definitions.tally(self.standings[player], problems)) for player in self.players]
            category = "" if name == "all" else name
            theirs = [
                _tally_words(self._published.tally(model, category), with_all=True)
                for model in self._published.model
                if not category or category in self._published.problems
            ]
            rows.append(_row(name, f"{len(problems):>3}", ours, theirs))
        return rows

    def _curve(self) -> list[list[Figure]]:
        rows = []
        for number, factor in enumerate(definitions.FACTORS):
            ours = [
                _share_words(definitions.fast_p(self.standings[player], self._catalogue.problems, factor))
                for player in self.players
            ]
            theirs = [_share_words(model.curve[number]) for model in self._published.model]
            rows.append(_row("pass" if factor == 0.0 else f"> {factor:g}×", "", ours, theirs))
        return rows

    def _bounds(self) -> list[list[Figure]]:
        """Returns two rows for each category, and a third if kernels without a roofline were left out."""
        rows = []
        for name, problems in self._groups:
            scores = [definitions.bound_scores(self.standings[player], problems) for player in self.players]
            lines = [
                ("of bound", [bound_words(score.percent) or "–" for score in scores]),
                ("gap closed", [share_words(score.gap_closed) for score in scores]),
            ]
            if any(score.no_roofline for score in scores):
                lines.append(("no roofline", [str(score.no_roofline or "") for score in scores]))
            for number, (words, cells) in enumerate(lines):
                rows.append(_row("" if number else name, words, cells))
        return rows

    # --- keys ----------------------------------------------------------------------------------------------

    def action_filter(self) -> None:
        """Opens the filter, in the view by problem: the other views count all problems."""
        self.view = PROBLEMS
        self._show()
        super().action_filter()

    @on(Input.Changed, "#board-filter")
    def _filtered(self) -> None:
        if self.view == PROBLEMS:
            self._show()

    def action_results(self) -> None:
        """Opens all results of the problem under the cursor, to void some: the board does not count voided results."""
        problem = self._board.under_cursor(self._listed)
        if self.view == PROBLEMS and problem is not None:
            self.app.push_screen(RunsDialog(self.services, problem), lambda _: self._read_again())

    def _read_again(self) -> None:
        self.run_worker(self._read(), exit_on_error=False)

    def action_next_view(self) -> None:
        self.view = VIEWS[(VIEWS.index(self.view) + 1) % len(VIEWS)]
        self._show()

    @on(DataTable.RowSelected, "#board")
    def _selected(self) -> None:
        if self.view == PROBLEMS and (problem := self._board.under_cursor(self._listed)) is not None:
            self.dismiss(problem)


def _row(first: str, second: str, ours: Iterable[str], published: Iterable[str] = ()) -> list[Figure]:
    behind = ((f"│ {words}", "muted") for words in published)
    return [(first, PLAIN), (second, "muted"), *((words, PLAIN) for words in ours), *behind]


def _tally_words(counted: definitions.Tally, with_all: bool = False) -> str:
    """ "5 · 4": solved and faster. `with_all` adds the number of problems: "5 · 4 /10"."""
    solved, faster, problems = counted
    return f"{solved:>2} · {faster}" + (f" /{problems}" if with_all else "")


def _share_words(share: float) -> str:
    return f"{figures.meter(share, _METER)} {share:>4.0%}"
