"""This machine: what runs and waits on it, and its sweeps, to start, stop and resume."""

import asyncio
import shlex
import time
from collections.abc import Callable
from typing import Any, ClassVar

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
from screens.widgets.tables import FigureTable
from screens.widgets.text_lines import PlainStatic

EVERY_S = 1.0
HEADS = ("who", "place", "expect", "what", "money", "since")
NEW = "--players house --problems category:collective"
"""The options that a new sweep begins with."""


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

    def compose(self) -> ComposeResult:
        with self.frame("This machine", "sweep: n new · x stop · r resume · ^r name · esc", classes="large"):
            yield FigureTable(id="work")
            yield PlainStatic("reading…", id="report")

    def on_mount(self) -> None:
        self.set_interval(EVERY_S, self._follow)
        self._follow()

    def _follow(self) -> None:
        if not self._reading:
            self._reading = True
            self.run_worker(self._read(), exit_on_error=False)

    async def _read(self) -> None:
        try:
            # One look at the queue for both.
            runs, sweeps = await asyncio.to_thread(lambda: (runs_under_way(held := queue()), self._sweeps.rows(held)))
        except (ArenaError, OSError) as error:
            self.refuse(str(error))
            return
        finally:
            self._reading = False
        self.rows = [*runs, *sweeps]
        table = self.query_one(FigureTable)
        table.fill(HEADS, [[(words, _colour(work)) for words in _cells(work, time.time())] for work in self.rows])
        table.display = bool(self.rows)
        running = sum(work.place == "running" for work in runs)
        self.report(f"running {running} · waiting {len(runs) - running}" if runs else "Nothing runs or waits.")

    @property
    def _sweep(self) -> Work | None:
        """The sweep under the cursor; None: a run, or nothing."""
        work = self.query_one(FigureTable).under_cursor(self.rows)
        return work if work is not None and work.sweep else None

    @on(DataTable.RowSelected)
    def _selected(self) -> None:
        if (work := self._sweep) is not None:
            self.dismiss(work.sweep)

    # --- sweeps --------------------------------------------------------------------------------------------

    def action_start(self) -> None:
        """Asks for the options of a new sweep, and starts it."""
        question = Ask("New sweep: options of `pkb-arena sweep`", NEW, enter="starts it")
        self._do_if_given(question, lambda options: start_sweep(self._paths, options))

    def action_rename(self) -> None:
        """Asks for another name of the sweep under the cursor."""
        if (work := self._sweep) is not None:
            question = Ask(printable(f"Rename {work.sweep}"), work.sweep, enter="renames it")
            self._do_if_given(question, lambda name: rename_sweep(self._paths, work, name))

    def action_stop(self) -> None:
        """Asks, and stops the sweep under the cursor."""
        if (work := self._sweep) is not None and work.pid:
            text = "Its results are kept, and r resumes it. The run in progress is cancelled."
            question = Question(printable(f"Stop {work.sweep}?"), text, "stop it", "let it run")
            self._do_if_given(question, lambda _: stop_sweep(work))

    def action_resume(self) -> None:
        """Resumes the sweep under the cursor."""
        if (work := self._sweep) is not None and not work.pid:
            options = shlex.join(["--resume", "--name", work.sweep])
            self.change(lambda: start_sweep(self._paths, options), self._follow)

    def _do_if_given(self, asks: Dialog[Any], change: Callable[[str], object]) -> None:
        """Makes a change with the answer of a dialog, if there is one."""
        ask(self, asks, lambda given: self.change(lambda: change(given), self._follow) if given else None)


def _colour(work: Work) -> str:
    return {"running": "accent", "stopped": "warning"}.get(work.place, "foreground" if work.sweep else "muted")


def _cells(work: Work, now: float) -> tuple[str, ...]:
    expected = "" if work.expected_s is None else f"≤ {figures.clock(work.expected_s)}"
    since = figures.clock(now - work.since) if now - work.since < 3600 else figures.age_words(work.since)
    cells = (work.who, work.place, expected, work.what, work.money, since)
    return tuple(map(printable, cells))
