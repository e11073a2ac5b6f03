"""This machine: what runs and waits on it, and its sweeps, to start, stop and resume."""

import asyncio
import shlex
import time
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable

from arena.errors import ArenaError
from arena.sweep.underway import Sweeps, Work, rename_sweep, runs_under_way, start_sweep, stop_sweep
from arena.words.untrusted_text import printable
from sandbox.referee.lease import queue
from screens import figures
from screens.app_protocol import ask
from screens.dialogs import Dialog
from screens.dialogs.questions import Ask, Question
from screens.services import Services
from screens.widgets.tables import Figure, FigureTable
from screens.widgets.text_lines import PlainStatic

HEADS = ("who", "place", "left", "since", "money", "what")
NEW = "--players house --problems category:collective "
"""The options that a new sweep begins with."""
EXAMPLE = "--players model:NAME,house --problems 1-8,category:expert --attempts 3 --budget 5"


class MachineDialog(Dialog[str | None]):
    """Dismisses with the name of the sweep to open."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "start", "start a sweep"),
        Binding("x", "stop", "stop the sweep; its results are kept"),
        Binding("r", "resume", "resume the sweep"),
        Binding("ctrl+r", "rename", "rename the sweep"),
    ]

    def __init__(self, services: Services) -> None:
        super().__init__()
        self._paths = services.paths
        self._sweeps = Sweeps(services.paths)
        self.rows: list[Work] = []
        self._reading = False
        self._changes = ""
        """What is being done to a sweep; empty: nothing."""
        self._started = ""
        """Name of a sweep that was started, until the cursor is at it."""

    def compose(self) -> ComposeResult:
        with self.frame("This machine", "n sweep · x stop · r resume · ctrl+r name · esc", classes="large"):
            yield FigureTable(id="work")
            yield PlainStatic("reading…", id="report")

    def on_mount(self) -> None:
        self.set_interval(1.0, self._follow)
        self._follow()

    def _follow(self) -> None:
        if not self._reading:
            self._reading = True
            self.run_worker(self._read(), exit_on_error=False)

    async def _read(self) -> None:
        try:
            runs, sweeps = await asyncio.to_thread(lambda: (runs_under_way(queue()), self._sweeps.rows()))
        except (ArenaError, OSError) as error:
            self.refuse(str(error))
            return
        finally:
            self._reading = False
        table = self.query_one(FigureTable)
        here = table.under_cursor(self.rows)
        self.rows = [*runs, *sweeps]
        rows = [_cells(work) for work in self.rows]
        shown = [at for at, _ in enumerate(HEADS) if any(row[at][0] for row in rows)]
        table.fill([HEADS[at] for at in shown], [[row[at] for at in shown] for row in rows])
        names = [work.sweep for work in self.rows]
        wanted = self._started or (here.sweep if here else "")
        if wanted in names[len(runs) :]:
            table.move_cursor(row=names.index(wanted))  # runs above it come and go
            self._started = ""
        table.display = bool(rows)
        running = sum(work.place == "running" for work in runs)
        said = f"runs: {running} running · {len(runs) - running} waiting" if runs else "No run at this moment."
        work = table.under_cursor(self.rows)
        whole = printable(f"{work.what}\n") if work and table.virtual_size.width > table.size.width else ""
        self.report(self._changes or f"{whole}{said}")

    def _sweep(self, running: bool | None = None) -> Work | None:
        """Returns the sweep under the cursor, if it is running or not as asked; else None, and says why."""
        work = self.query_one(FigureTable).under_cursor(self.rows)
        if work is None or (work.sweep and running in (None, bool(work.pid))):
            return work
        kind = f"a sweep that is {work.place}" if work.sweep else "a run, not a sweep"
        self.app.notify(f"This is {kind}.", severity="warning", markup=False)
        return None

    @on(DataTable.RowSelected)
    def _selected(self) -> None:
        if (work := self._sweep()) is not None:
            self.dismiss(work.sweep)

    # --- sweeps --------------------------------------------------------------------------------------------

    def action_start(self) -> None:
        def start(options: str) -> None:
            self._started = start_sweep(self._paths, options)

        options = Ask("New sweep: options of `pkb-arena sweep`", start, NEW, EXAMPLE, enter="starts it")
        ask(self, options, lambda _: self._follow())

    def action_rename(self) -> None:
        """Asks for another name of the sweep under the cursor."""
        if (work := self._sweep()) is not None:
            rename = partial(rename_sweep, self._paths, work)
            name = Ask(printable(f"Rename {work.sweep}"), rename, work.sweep, enter="renames it")
            ask(self, name, lambda _: self._follow())

    def action_stop(self) -> None:
        """Asks, and stops the sweep under the cursor."""
        if (work := self._sweep(running=True)) is not None:
            text = "Its results are kept, and r resumes it. The run in progress is cancelled."
            question = Question(printable(f"Stop {work.sweep}?"), text, "stop it", "let it run")
            ask(self, question, lambda sure: self._change(f"stopping {work.sweep}", partial(stop_sweep, work), sure))

    def action_resume(self) -> None:
        """Resumes the sweep under the cursor."""
        if (work := self._sweep(running=False)) is not None:
            options = shlex.join(["--resume", "--name", work.sweep])
            self._change(f"resuming {work.sweep}", partial(start_sweep, self._paths, options))

    def _change(self, words: str, change: Callable[[], object], sure: bool = True) -> None:
        """Makes a change if it is wanted, and shows the words until it is made."""

        def made() -> None:
            self._changes = ""
            self._follow()

        if sure:
            self._changes = printable(f"{words}…")
            self.report(self._changes)
            self.change(change, made)


def _cells(work: Work) -> list[Figure]:
    colour = {"running": "accent", "stopped": "warning"}.get(work.place, "foreground" if work.sweep else "muted")
    over = not work.sweep and work.place == "running" and time.time() - work.since > (work.expected_s or 0.0)
    left = "" if work.expected_s is None or over else f"≤ {figures.clock(work.expected_s)}"
    words = (work.who, work.place, left, figures.age_words(work.since), work.money, work.what)
    return [(printable(each), colour) for each in words]
