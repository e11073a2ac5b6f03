"""All players' results of one problem, to void them or to take that back."""

import asyncio
from pathlib import Path
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from arena.errors import ArenaError
from arena.records.run_record import Entry
from problems.specification import Problem
from screens.dialogs.dialog import Dialog
from screens.dialogs.result_line import result_line
from screens.dialogs.void import ask_to_void
from screens.services import Services
from screens.widgets.foreign import PlainStatic
from screens.widgets.measured import MeasuredPane, Remeasured
from screens.widgets.pane_title import entitle

ONE_ROW_FROM = 132
"""Minimum width of the list for one row per run, in columns."""


class ResultsDialog(Dialog[None]):
    """Lists the results, the newest first."""

    CSS_PATH: ClassVar[Any] = [*Dialog.CSS_PATH, Path(__file__).with_name("board.tcss")]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "back"),
        Binding("x", "void", "void, or take that back"),
    ]

    def __init__(self, services: Services, problem: Problem) -> None:
        super().__init__()
        self.services, self.problem = services, problem
        self.entries: list[Entry] = []

    def compose(self) -> ComposeResult:
        with MeasuredPane(classes="dialog large") as dialog:
            entitle(dialog, f"Results · {self.problem.id} · {self.problem.title}")
            dialog.border_subtitle = "x voids, or takes that back · esc back"
            yield PlainStatic("reading…", id="board-note")
            yield OptionList(id="results")

    def on_mount(self) -> None:
        self.run_worker(self._read(), exit_on_error=False)

    async def _read(self) -> None:
        try:
            self.entries = await asyncio.to_thread(self.services.store.history, self.problem.id, None)
        except ArenaError as error:
            self.query_one("#board-note", PlainStatic).update(error.one_line)
            return
        words = "All runs, the newest first. A voided result is struck out, in no standing and no score."
        self.query_one("#board-note", PlainStatic).update(words if self.entries else "No results yet.")
        self._list()
        self.query_one("#results").focus()

    @on(Remeasured)
    def _list(self) -> None:
        results = self.query_one("#results", OptionList)
        at = results.highlighted or 0
        room = self.query_one("#board-note").content_size.width - 2  # beside a scrollbar
        results.clear_options()
        results.add_options(
            Option(result_line(entry, room, room >= ONE_ROW_FROM, player=True)) for entry in self.entries
        )
        results.highlighted = at if self.entries else None

    @on(OptionList.OptionSelected, "#results")
    def action_void(self) -> None:
        """Voids the result under the cursor, or takes that back."""
        number = self.query_one("#results", OptionList).highlighted
        if number is not None:
            ask_to_void(self, self.services.paths, self.entries[number], self._read)
