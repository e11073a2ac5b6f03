"""The board: results of every player side by side, by problem, by category and by how much faster they are."""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Input

from arena.board.definitions import BOUND_WORDS, FACTORS, Tally, order_of, read_published
from arena.board.gathering import Board, gather
from arena.board.scorecard import ALL, ResultPlace, Scorecard
from arena.board.tables import bound_words, place_words, share_words
from arena.errors import ArenaError
from arena.records.ranking import Standing
from arena.words.untrusted_text import printable
from problems.catalogue import Catalogue
from problems.specification import Problem
from screens import figures
from screens.dialogs import Dialog
from screens.dialogs.runs import RunsDialog
from screens.services import Services
from screens.widgets.key_line import entitle
from screens.widgets.tables import PLAIN, Figure, FigureTable, FilterInput, has_word
from screens.widgets.text_lines import PlainStatic, follow_width

PROBLEMS, CATEGORIES, CURVE, BOUND = "by problem", "by category", "fast_p", "bound"
VIEWS = (PROBLEMS, CATEGORIES, CURVE, BOUND)
_NOTES = {
    PROBLEMS: "The best correct kernel of each player on this machine, by the clock of its headline. Other sizes: a faster kernel"
    " is also faster at all, some or none. Settings with too noisy times do not count.",
    CATEGORIES: "Solved · faster than the baseline by the whole interval / problems that the player tried."
    " Behind the line: published, best of three attempts, on another machine.",
    CURVE: "Share of the problems that the player tried with a correct kernel more than p times as fast as the baseline, by one"
    " attempt. Behind the line: published, of all problems, on another machine.",
    BOUND: f"Correct kernels. {' '.join(BOUND_WORDS.split())}",
}
MORE = "→ more columns"
OTHER_SIZES = "other sizes"
"""The column beside a player whose faster kernels were judged at other sizes."""


class BoardDialog(Dialog[Problem | None]):
    """Dismisses with the problem to open."""

    CSS_PATH: ClassVar[Any] = [*Dialog.CSS_PATH, Path(__file__).with_name("board.tcss")]
    TO_READ = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f3,v", "next_view", "next view", id="next_view"),
        Binding("p", "next_place", "next setting and machine"),
        Binding("slash", "filter", "filter", id="filter"),
        Binding("x", "results", "all results of the problem, to void"),
    ]

    def __init__(self, services: Services) -> None:
        super().__init__()
        self.services = services
        self.view = PROBLEMS
        self.standings: dict[str, dict[int, Standing]] = {}
        """Of every player, by problem id."""
        self.board: Board | None = None
        """What `pkb-arena board` prints, from which the scores are; None: not gathered yet."""
        self.place: ResultPlace | None = None
        """The setting and the machine whose scores are shown; None: there are no results."""
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
            players = order_of(await asyncio.to_thread(store.players))
            self.standings = {player: await asyncio.to_thread(store.standings, player) for player in players}
            self.board = await asyncio.to_thread(gather, self.services.paths, self._catalogue)
            await asyncio.to_thread(read_published)  # kept from here on: drawing reads no file
        except ArenaError as error:
            self.query_one("#board-note", PlainStatic).update(error.one_line)
            return
        if self.place not in self.board.places:
            self.place = self.board.busiest_place
        self.query_one("#board").focus()
        self._show()

    @property
    def _catalogue(self) -> Catalogue:
        assert self.services.catalogue is not None
        return self.services.catalogue

    # --- drawing -------------------------------------------------------------------------------------------

    def _show(self) -> None:
        if self.board is None:
            return
        self._fill(self.board)
        table, keys = self._board, [words for words in self._keys if words != MORE]
        cut = sum(column.get_render_width(table) for column in table.ordered_columns) > table.size.width
        self.name_keys(" · ".join([MORE, *keys] if cut else keys))

    def _fill(self, board: Board) -> None:
        table = self._board
        table.fixed_columns = 2
        shown = " · ".join(f"▸{view}" if view == self.view else view for view in VIEWS)
        entitle(self.query_one(".dialog"), f"Board · {shown}")
        note = _NOTES[self.view]
        if self.view == PROBLEMS and not self.standings:
            note = f"No results yet. Press {self.key_words('open')} on a problem, then {self.key_words('save')}."
        table.display = bool(self.standings) or self.view != PROBLEMS
        if self.view != PROBLEMS and self.place is not None:
            more = f" (of {len(board.places)}; p: next)" if len(board.places) > 1 else ""
            note = f"{place_words(board, self.place)}{more}. {note}"
        if self.view in (CATEGORIES, CURVE):
            note += f" ({read_published().source})"
        note += "".join(f" Left out: {each.what}." for each in board.left_out)
        about = self.query_one("#board-note", PlainStatic)
        about.update(note)
        about.set_class(table.display, "above")
        if self.view == PROBLEMS:
            self._show_problems()
            return
        rows = {CATEGORIES: self._categories, CURVE: self._curve, BOUND: self._bounds}[self.view]()
        published = [model.name for model in read_published().model] if self.view != BOUND else []
        players = map(printable, self._scored)
        head = _row("p" if self.view == CURVE else "category", "", players, published)
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
        for player, standings in self.standings.items():
            held = [standings.get(problem.id) for problem in self._listed]
            heads.append(printable(player))
            columns.append([figures.standing_words(each) for each in held])
            if any(each is not None and each.holds for each in held):
                heads.append(OTHER_SIZES)
                columns.append([figures.holds_words(each) for each in held])
        cells = [[column[at] for column in columns] for at in range(len(self._listed))]
        self._board.fill_problems(self._listed, heads, cells)

    @property
    def _scored(self) -> list[str]:
        """The players with results in this place."""
        assert self.board is not None
        return order_of([card.player for card in self.board.cards if card.place == self.place])

    def _cells(self, scope: str, words: Callable[[Scorecard], str]) -> list[str]:
        """Returns the words of each player's scores over all problems or in a category."""
        assert self.board is not None
        found = {
            card.player: words(card) for card in self.board.scores if (card.place, card.scope) == (self.place, scope)
        }
        return [found.get(player) or "–" for player in self._scored]

    @property
    def _scopes(self) -> list[tuple[str, str, int]]:
        """(name, scope, number of problems) of all problems, then of each category."""
        parts = [(name, f"category:{name}", len(found)) for name, found in self._catalogue.categories.items()]
        return [("all", ALL, len(self._catalogue.problems)), *parts]

    def _categories(self) -> list[list[Figure]]:
        rows = []
        for name, scope, problems in self._scopes:
            ours = self._cells(scope, lambda card: _tally_words((card.solved, card.faster, card.problems)))
            category = "" if scope == ALL else name
            theirs = [
                _tally_words(read_published().tally(model, category))
                for model in read_published().model
                if not category or category in read_published().problems
            ]
            rows.append(_row(name, f"{problems:>3}", ours, theirs))
        return rows

    def _curve(self) -> list[list[Figure]]:
        models = read_published().model
        rows = [("pass", "0", self._cells(ALL, lambda card: share_words(card.pass_1)))]
        for p in (f"{factor:g}" for factor in FACTORS):
            rows.append((f"> {p}×", p, self._cells(ALL, lambda card, p=p: share_words(card.fast.get(p)))))  # type: ignore[misc]
        theirs = [
            [f"{100 * model.curve[p]:.0f} %" if p in model.curve else "–" for model in models] for _, p, _ in rows
        ]
        return [_row(name, "", ours, published) for (name, _, ours), published in zip(rows, theirs, strict=True)]

    def _bounds(self) -> list[list[Figure]]:
        """Returns up to three rows for all problems and for each category: those in which a player has a figure."""
        rows = []
        for name, scope, _ in self._scopes:
            figures_of = {
                "of bound": self._cells(scope, lambda card: bound_words(card.percent)),
                "gap closed": self._cells(scope, lambda card: share_words(card.gap_closed)),
                "no roofline": self._cells(scope, lambda card: str(card.no_roofline or "")),
            }
            known = [(what, cells) for what, cells in figures_of.items() if {*cells} - {"–"}]
            rows += [_row("" if at else name, what, cells) for at, (what, cells) in enumerate(known)]
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
        self.run_worker(self._read(), exclusive=True, exit_on_error=False)  # what was read earlier must not come later

    def action_next_view(self) -> None:
        self.view = VIEWS[(VIEWS.index(self.view) + 1) % len(VIEWS)]
        self._show()

    def action_next_place(self) -> None:
        """Shows the scores of the next setting and machine, because results of different ones cannot be compared."""
        if self.board is not None and self.place is not None:
            places = self.board.places
            self.place = places[(places.index(self.place) + 1) % len(places)]
            self._show()

    @on(DataTable.RowSelected, "#board")
    def _selected(self) -> None:
        if self.view == PROBLEMS and (problem := self._board.under_cursor(self._listed)) is not None:
            self.dismiss(problem)


def _row(first: str, second: str, ours: Iterable[str], published: Iterable[str] = ()) -> list[Figure]:
    behind = ((f"│ {words}", "muted") for words in published)
    return [(first, PLAIN), (second, "muted"), *((words, PLAIN) for words in ours), *behind]


def _tally_words(counted: Tally) -> str:
    """ "5 · 4 /10": solved and faster, of the problems that were tried."""
    solved, faster, problems = counted
    return f"{solved:>2} · {faster} /{problems}"
