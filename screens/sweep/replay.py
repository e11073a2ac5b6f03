"""Replays one cell of a sweep: its attempts one by one, each with its run and its kernel."""

import asyncio
from pathlib import Path
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content

from arena.records.header import read_events, read_header
from arena.runs.run_state import RunState
from arena.sweep.grid import CellMark, mark_words
from arena.words.headline import headline_so_far
from arena.words.untrusted_text import printable
from arena.workspace.kernel_folder import shown_text
from problems.specification import Problem
from sandbox.protocol.events import PHASES, AnyEvent
from screens import figures
from screens.dialogs import Dialog
from screens.services import Services
from screens.widgets.key_line import entitle
from screens.widgets.source import SOURCE_STYLES, Source
from screens.widgets.text_lines import PlainStatic

STEP_S = 0.05
PACES = (1.0, 4.0, 16.0)


class CellReplay(Dialog[None]):
    """Plays the chosen attempt at once; `n` goes to the next one, space to another pace."""

    CSS_PATH: ClassVar[Any] = [*Dialog.CSS_PATH, SOURCE_STYLES, Path(__file__).with_name("screen.tcss")]
    TO_READ = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "back", "back"),
        # with priority, because the source has the focus and keys of its own
        Binding("n", "turn(1)", "next attempt", priority=True),
        Binding("p", "turn(-1)", "previous", priority=True),
        Binding("space", "pace", "pace", priority=True),
        Binding("home", "again", "from the start", priority=True),
    ]

    def __init__(self, services: Services, problem: Problem, player: str, marks: list[CellMark]) -> None:
        """marks: at least one, in the order of the attempts."""
        super().__init__()
        self._services = services
        self._problem, self._player, self._marks = problem, player, marks
        self._number = 0
        self._events: list[AnyEvent] = []
        self._next = 0
        self._at = 0.0
        self._pace = PACES[1]
        self._state = RunState()
        self._missing = ""

    def compose(self) -> ComposeResult:
        more = "n next attempt · " if len(self._marks) > 1 else ""
        with self.frame("", f"{more}space pace · home again · esc back", classes="large", id="cell"):
            yield PlainStatic("reading…", id="cell-told")
            yield Source("", id="cell-source")

    def on_mount(self) -> None:
        self.action_turn(0)
        self.set_interval(STEP_S, self._step)

    def action_turn(self, by: int) -> None:
        """Goes to another attempt."""
        self._number = (self._number + by) % len(self._marks)
        self.run_worker(self._read(self._marks[self._number]), exclusive=True, exit_on_error=False)

    def action_pace(self) -> None:
        """Changes to the next pace."""
        self._pace = PACES[(PACES.index(self._pace) + 1) % len(PACES)]

    def action_again(self) -> None:
        """Starts the replay again."""
        self._next, self._state = 0, RunState()
        self._at = self._events[0].at if self._events else 0.0
        self._show()

    async def _read(self, mark: CellMark) -> None:
        self._events, self._missing, source = [], "", ""
        path = self._services.paths.runs / f"{mark.run_id}.jsonl"
        if mark.run_id:
            try:
                source = shown_text((await asyncio.to_thread(read_header, path)).kernel)
                events = await asyncio.to_thread(lambda: list(read_events(path)))
                self._events = [event for event in events if event.at]
            except (OSError, ValueError):
                self._missing = "The run's journal is not on this machine."
        if not source and mark.sha256:
            kept = await asyncio.to_thread(self._services.workspace.kernel, mark.sha256)
            source = shown_text(kept) if kept is not None else ""
        self.query_one("#cell-source", Source).text = (
            source or "# no kernel: the baseline itself, or an answer without a kernel"
        )
        self.action_again()

    def _step(self) -> None:
        if self._next >= len(self._events):
            return
        self._at += STEP_S * self._pace
        while self._next < len(self._events) and self._events[self._next].at <= self._at:
            self._state.apply(self._events[self._next])
            self._next += 1
        self._show()

    def _show(self) -> None:
        mark = self._marks[self._number]
        which = f" · attempt {mark.attempt} of {len(self._marks)}" if len(self._marks) > 1 else ""
        entitle(self.query_one("#cell"), printable(f"{self._problem.stem} · {self._player}{which}"))
        ended = self._next >= len(self._events)
        sign, colour = ("✓", "$success") if mark.passed else ("✗", "$error")
        verdict = Content.styled(f"{sign} {printable(mark_words(mark))}", colour)
        lines = [verdict if ended else Content("▸ replaying")]
        lines += [Content(text) for text in self._told(mark, ended)]
        self.query_one("#cell-told", PlainStatic).update(Content("\n").join(lines))

    def _told(self, mark: CellMark, ended: bool) -> list[str]:
        took = {name: self._state.phases[name].seconds for name in PHASES if name in self._state.phases}
        told = [f"▸ {name}" if took[name] is None else f"✓ {name} {took[name]:.2f} s" for name in took]
        lines = ["   ".join(told)] if told else []
        if self._state.samples:
            sample = self._state.samples[-1]
            headline = headline_so_far(sample)
            words = figures.measured_words(headline.speedup, headline.outcome)
            lines.append(f"round {sample.round}  {words}")
        if ended and mark.detail:
            lines.append(printable(mark.detail))
        if ended and mark.one_size_only:
            lines.append("made for one size: wrong at another one")
        cost = f"   ${mark.usd:.4f}" if mark.usd else ""
        trace = f"   pkb-arena replay {mark.trace_id} shows how it was written" if mark.trace_id else ""
        lines.append(f"{mark.seconds:.1f} s on the worker{cost}   pace {self._pace:g}×{trace}")
        return [*lines, self._missing] if self._missing else lines
