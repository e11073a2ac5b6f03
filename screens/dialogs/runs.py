"""The table of runs of a problem: any revision, kernel and setting, to search, compare, note and void."""

import asyncio
import math
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Input

from arena.errors import ArenaError
from arena.records.run_record import RunRecord, Unrun
from arena.records.run_table import HEADINGS, RIGHT, read_notes, run_cells, write_note
from arena.words.untrusted_text import printable
from problems.specification import Problem
from sandbox.protocol.events import Contender
from sandbox.protocol.kernel_files import Kernel
from screens import figures
from screens.app_protocol import arena_app, ask
from screens.dialogs import Dialog
from screens.dialogs.questions import Ask
from screens.dialogs.void import ask_to_void
from screens.services import Services
from screens.widgets.tables import Figure, FigureTable, FilterInput
from screens.widgets.text_lines import PlainStatic

MARKED = "marked"
"""The word of the filter that leaves only the marked rows."""
ALIKE = ("player", "kernel", "setting", "clock")
"""Columns that are left out if all rows have the same in them."""


class RunsDialog(Dialog[Kernel | Contender | None]):
    """All players' runs of a problem, the newest first. A subclass shows more below the table."""

    CSS_PATH: ClassVar[Any] = [*Dialog.CSS_PATH, Path(__file__).with_name("runs.tcss")]
    HEAD: ClassVar[str] = "Results"
    KEYS: ClassVar[str] = ""
    """The keys of a subclass for the border."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "search the runs"),
        Binding("m", "mark", "mark it, to compare others with it; a search for `marked` lists only these"),
        Binding("n", "note", "note on the revision"),
        Binding("s", "sort", "fastest first, or newest first"),
        Binding("x", "void", "void it, or take that back"),
    ]

    def __init__(self, services: Services, problem: Problem) -> None:
        super().__init__()
        self.services, self.problem = services, problem
        self.entries: list[RunRecord | Unrun] = []
        """The rows as shown."""
        self._all: list[RunRecord | Unrun] = []
        self._notes: dict[str, str] = {}
        self._marked = services.marked
        self._alike = ""
        """What the rows have in common; it has no column."""
        self._fastest = False
        """Whether the fastest run is the first row."""

    def compose(self) -> ComposeResult:
        title = printable(f"{self.HEAD} · {self.problem.id} · {self.problem.title}")
        keys = f"{self.KEYS}/ search · n note · m mark · s sort · x void · esc"
        with self.frame(title, keys, classes="large"):
            yield PlainStatic("reading…", id="said")
            yield FilterInput("words of any column, or marked", id="search", of="#runs")
            yield FigureTable(id="runs")
            yield from self.compose_below()

    def compose_below(self) -> ComposeResult:
        """Returns what is below the table."""
        return ()

    def on_mount(self) -> None:
        self._table.fixed_columns = 1
        self.run_worker(self._read(), exit_on_error=False)

    def read_entries(self) -> list[RunRecord | Unrun]:
        """Returns the rows, the newest first. Blocks for milliseconds.

        Raises:
            ArenaError: they cannot be read.
        """
        return list(self.services.store.history(self.problem.id, None))

    async def _read(self) -> None:
        try:
            with arena_app(self).keys_wait():  # for the rows
                async with self.services.reading:
                    folder = self.services.paths.workspace
                    self._all, self._notes = await asyncio.to_thread(lambda: (self.read_entries(), read_notes(folder)))
        except ArenaError as error:
            self.query_one("#said", PlainStatic).update(error.one_line)
            return
        self._list()
        if self.entries and not self.query_one("#search").display:
            self._table.focus()

    @property
    def _table(self) -> FigureTable:
        return self.query_one("#runs", FigureTable)

    @property
    def current(self) -> RunRecord | Unrun | None:
        return self._table.under_cursor(self.entries)

    def is_here(self, entry: RunRecord | Unrun) -> bool:
        """Whether its kernel is the one in the editor."""
        return False

    def runs_now(self, entry: RunRecord | Unrun) -> bool:
        """Whether it is the text that is judged now."""
        return False

    @property
    def counted(self) -> str:
        """ "3 of 4 runs, 1 text not run"."""
        ran, all_ran = (sum(isinstance(each, RunRecord) for each in rows) for rows in (self.entries, self._all))
        unrun = len(self.entries) - ran - sum(map(self.runs_now, self.entries))
        return f"{ran} of {all_ran} runs" + (f", {unrun} text{'s' * (unrun > 1)} not run" if unrun else "")

    # --- drawing -------------------------------------------------------------------------------------------

    @on(Input.Changed, "#search")
    def _list(self) -> None:
        """Lists the runs that the search leaves, and keeps the cursor on its run."""
        words, here = self.query_one(FilterInput).words, self.current
        rows = [(entry, run_cells(entry, self._notes.get(entry.sha256, ""))) for entry in self._all]
        rows = [(entry, cells) for entry, cells in rows if all(self._matches(entry, cells, word) for word in words)]
        if self._fastest:
            rows.sort(key=lambda row: row[0].time_us or math.inf)
        self.entries = [entry for entry, _ in rows]
        values = {name: {cells[name] for _, cells in rows} - {""} for name in HEADINGS}
        alike = [name for name in ALIKE if len(rows) > 1 and len(values[name]) == 1]
        self._alike = "".join(f" · {values[name].copy().pop()}" for name in alike)
        values["speedup"] |= values.pop("outcome")  # a run without a speedup has its outcome in that column
        shown = [name for name in HEADINGS if values.get(name) and name not in alike]
        if self.size.width < 80:
            shown.sort(key=lambda name: name == "baseline µs")  # the first to be cut
        drawn = [[self._cell(entry, name, cells) for name in shown] for entry, cells in rows]
        for column in (number for number, name in enumerate(shown) if name in RIGHT):
            width = max(len(shown[column]), *(len(row[column][0]) for row in drawn))
            shown[column] = shown[column].rjust(width)
            for row in drawn:
                row[column] = (row[column][0].rjust(width), row[column][1])
        self._table.fill(shown, drawn)
        places = [at for at, each in enumerate(self.entries) if here is not None and id_of(each) == id_of(here)]
        self._table.move_cursor(row=places[0] if places else 0)
        self.show_current()
        self._table.display = bool(self.entries)  # last: the focus must not go to what is below it

    def _matches(self, entry: RunRecord | Unrun, cells: dict[str, str], word: str) -> bool:
        return id_of(entry) in self._marked if word == MARKED else any(word in cell.lower() for cell in cells.values())

    def _cell(self, entry: RunRecord | Unrun, name: str, cells: dict[str, str]) -> Figure:
        words, colour = cells[name], "muted" if isinstance(entry, Unrun) else "foreground"
        if name == "when":
            mark = "●" if id_of(entry) in self._marked else "▸" if self.is_here(entry) else " "
            words, colour = f"{mark} {figures.age_words(entry.created)}", "muted"
        elif name == "verdict" and self.runs_now(entry):
            words, colour = "running", "accent"
        elif name == "note":
            words = figures.cut(words, 40)
        elif isinstance(entry, RunRecord) and name == "verdict" and not entry.voided:
            words, colour = figures.verdict_words(entry.verdict), figures.verdict_style(entry.verdict)
        elif isinstance(entry, RunRecord) and name == "speedup" and entry.outcome:
            words, colour = figures.result_part(entry)
        if isinstance(entry, RunRecord) and entry.voided and name != "note":
            colour = f"strike {colour}"
        return words, colour

    @on(DataTable.RowHighlighted, "#runs")
    def _highlighted(self) -> None:
        self.show_current()

    def show_current(self) -> None:
        """Says above the table who voided the run under the cursor, and why; else how many rows there are."""
        entry = self.current
        if isinstance(entry, RunRecord) and entry.voided:
            said = printable(entry.voided.words)
        elif self.entries:
            said = f"{self.counted}{self._alike}. Times are medians of a call."
        else:
            said = "No run is found. esc ends the search." if self._all else "No results yet."
        self.query_one("#said", PlainStatic).update(said)

    # --- keys ----------------------------------------------------------------------------------------------

    def action_mark(self) -> None:
        if (entry := self.current) is not None:
            self._marked ^= {id_of(entry)}
            self._list()

    def action_sort(self) -> None:
        self._fastest = not self._fastest
        self._list()

    def action_note(self) -> None:
        """Asks for a note on the revision under the cursor."""
        if (entry := self.current) is None:
            return
        sha256, folder = entry.sha256, self.services.paths.workspace
        title, write = f"Note on revision {sha256[:8]}", partial(write_note, folder, sha256)
        noted = Ask(title, write, self._notes.get(sha256, ""), "two-shot, ring=2")
        ask(self, noted, lambda _: self.run_worker(self.follow(), exit_on_error=False))

    def action_void(self) -> None:
        """Asks whether to void the run under the cursor, or to take that back."""
        if isinstance(entry := self.current, RunRecord):
            ask_to_void(self, self.services.paths, entry, self.follow)

    async def follow(self) -> None:
        """Follows a change of the notes or the voids."""
        await self._read()


def id_of(entry: RunRecord | Unrun) -> str:
    return entry.run_id if isinstance(entry, RunRecord) else entry.sha256
