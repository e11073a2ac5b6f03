"""The history: every revision that was run, with verdict and code, to restore or to compare with the editor."""

import asyncio
from pathlib import Path
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import ContentSwitcher, OptionList
from textual.widgets.option_list import Option

from arena.errors import ArenaError
from arena.records.run_record import RunRecord, Unrun
from arena.workspace.kernel_folder import shown_name, shown_text, texts_of
from arena.workspace.named_kernels import BASELINE, starter
from sandbox.protocol.events import Contender
from sandbox.protocol.kernel_files import MAIN, Kernel
from sandbox.protocol.verdict import Verdict
from screens import figures
from screens.dialogs import Dialog
from screens.dialogs.result_line import result_line
from screens.dialogs.void import ask_to_void
from screens.kernel.kernel_session import KernelSession
from screens.kernel.source.diff_view import DiffView
from screens.kernel.source.side_by_side import SideBySide
from screens.widgets.source import SOURCE_STYLES, Source
from screens.widgets.source_bars import FindBar
from screens.widgets.text_lines import PlainStatic

SIDES_FROM = 110
"""Columns of the terminal from which two sources fit side by side."""
ONE_ROW_FROM = 128
"""Columns of the terminal from which a run fits into one row."""
BESIDE = 8
"""Columns of the dialog that a row cannot use: borders, padding and a scrollbar."""


class HistoryScreen(Dialog[Kernel | Contender | None]):
    """Dismisses with the kernel to restore, or with the revision to time the editor's text against."""

    CSS_PATH: ClassVar[Any] = [*Dialog.CSS_PATH, SOURCE_STYLES, Path(__file__).with_name("history.tcss")]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "back"),
        Binding("ctrl+f", "find", "find in the preview"),
        Binding("space", "compare", "compare with the editor"),
        Binding("t", "time", "time the editor's kernel against it"),
        Binding("x", "void", "void it, or take that back"),
    ]

    def __init__(self, session: KernelSession, text: str) -> None:
        super().__init__()
        self.session = session
        self.text = text
        self.entries: list[RunRecord | Unrun] = []
        self.comparing = False
        """Whether the revision is compared with the editor's text."""
        self._sure_of: int | None = None
        """The row for which `t` was pressed, and needs a second press."""
        self._here = ""
        """The hash of the editor's kernel."""
        self._width = 0
        """Columns of the terminal for which the runs are listed; 0: not listed yet."""

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog large") as dialog:
            dialog.border_title = f"History · {self.session.problem.slug}"
            dialog.border_subtitle = "enter restores · space diff · t times · x voids"
            yield OptionList(id="runs")
            yield PlainStatic("reading…", id="nothing")
            with ContentSwitcher(initial="preview", id="revision"):
                yield Source(id="preview")
                yield SideBySide(id="sides")
                yield DiffView(id="unified")

    def on_mount(self) -> None:
        self.run_worker(self._read(), exit_on_error=False)

    async def _read(self) -> None:
        services, problem = self.session.services, self.session.problem
        workspace = services.workspace
        try:
            ran = await asyncio.to_thread(lambda: services.store.history(problem.id))
        except ArenaError as error:
            self.query_one("#nothing", PlainStatic).update(error.one_line)
            return
        known = {entry.sha256 for entry in ran} | {Kernel(starter(problem, BASELINE)).sha256}
        kept = workspace.kept_of(self.session.path).items()
        unrun = [Unrun(created, sha256) for sha256, created in kept if sha256 not in known]
        self.entries = sorted([*ran, *unrun], key=lambda entry: entry.created, reverse=True)
        self._here = self._editors.sha256
        runs = self.query_one("#runs", OptionList)
        self._width = 0
        self._list()
        nothing = self.query_one("#nothing", PlainStatic)
        nothing.display = not self.entries
        runs.display = self.query_one("#revision").display = bool(self.entries)
        nothing.update(
            "Nothing kept yet. Every kernel that you save or run is kept here, with its verdict and speedup."
        )
        if self.entries:
            runs.highlighted = runs.highlighted or 0
            runs.focus()

    def _list(self) -> None:
        """Lists the runs in rows of this width. Does nothing if the width is unchanged."""
        width = self.app.size.width
        if width == self._width:
            return
        self._width = width
        wide, room = width >= ONE_ROW_FROM, int(0.96 * width) - BESIDE
        runs = self.query_one("#runs", OptionList)
        name = shown_name(self.session.path)
        at = runs.highlighted
        runs.clear_options()
        runs.add_options(
            Option(result_line(entry, room, wide, entry.sha256 == self._here, kernel=name), id=f"run-{number}")
            for number, entry in enumerate(self.entries)
        )
        runs.highlighted = at

    @property
    def _view(self) -> str:
        """ "preview", or the form of comparison that fits this width."""
        if not self.comparing:
            return "preview"
        return "sides" if self.app.size.width >= SIDES_FROM else "unified"

    def _show(self) -> None:
        """Shows the revision under the cursor."""
        number = self.query_one("#runs", OptionList).highlighted
        kernel = self._kernel_of(number)
        switcher = self.query_one("#revision", ContentSwitcher)
        switcher.current = self._view
        if number is None:
            return
        name = f"revision {self.entries[number].sha256[:8]}"
        if kernel is None:
            self.query_one("#preview", Source).text = f"# the text of {name} is not in the workspace"
            switcher.current = "preview"
        elif self._view == "preview":
            self.query_one("#preview", Source).text = shown_text(kernel)
        elif self._view == "sides":
            self.query_one(SideBySide).show(texts_of(kernel), texts_of(self._editors), name, "editor")
        else:
            self.query_one(DiffView).show(texts_of(kernel), texts_of(self._editors), name, "editor")

    def on_resize(self) -> None:
        if self.entries:
            self._list()
            self._show()

    @property
    def _editors(self) -> Kernel:
        return Kernel(self.text, self.session.kernel.files)

    def _kernel_of(self, number: int | None) -> Kernel | None:
        if number is None or number >= len(self.entries):
            return None
        return self.session.services.workspace.kernel(self.entries[number].sha256)

    @on(OptionList.OptionSelected, "#runs")
    def _selected(self, event: OptionList.OptionSelected) -> None:
        kernel = self._kernel_of(event.option_index)
        if kernel is not None:
            self.dismiss(kernel)
        else:
            words = "The text of this revision is not in the workspace."
            self.app.notify(words, severity="warning", markup=False)

    @on(OptionList.OptionHighlighted, "#runs")
    def _highlighted(self) -> None:
        self._sure_of = None
        self._show()

    async def action_find(self) -> None:
        """Opens the find bar for the text of the revision under the cursor."""
        if not self.entries:
            return
        self.comparing = False
        self._show()
        if not (bars := self.query(FindBar)):
            await self.query_one(".dialog").mount(FindBar())
            bars = self.query(FindBar)
        bars.first().open(self.query_one("#preview", Source))

    def action_back(self) -> None:
        """Closes the find bar if it is open, else the history."""
        for bar in self.query(FindBar):
            if bar.source is not None:
                bar.close()
                self.query_one("#runs").focus()
                return
        self.dismiss(None)

    def action_time(self) -> None:
        """Times the editor's kernel against the revision under the cursor, in one run. Asks for a second press if in doubt."""
        number = self.query_one("#runs", OptionList).highlighted
        kernel = self._kernel_of(number)
        if number is not None and kernel is not None:
            entry = self.entries[number]
            said = figures.verdict_words(entry.verdict) if isinstance(entry, RunRecord) else "not judged yet"
            passed = isinstance(entry, RunRecord) and entry.verdict is Verdict.PASS
            wrong = "" if passed else f"This revision is {said}."
            doubt = " ".join(filter(None, [wrong, "A run is in progress." if self.session.busy else ""]))
            if doubt and self._sure_of != number:
                self._sure_of = number
                self.app.notify(
                    f"{doubt} t again times the editor's kernel against it.", severity="warning", markup=False
                )
                return
            name = f"revision-{self.entries[number].sha256[:8]}"
            self.dismiss(Contender(f"{name}/{MAIN}" if kernel.files else f"{name}.py", kernel.source, kernel.files))

    def action_void(self) -> None:
        """Asks whether to void the run under the cursor, or to take that back."""
        number = self.query_one("#runs", OptionList).highlighted
        if number is not None and isinstance(entry := self.entries[number], RunRecord):
            ask_to_void(self, self.session.services.paths, entry, self._voided)

    async def _voided(self) -> None:
        await self._read()
        await self.session.refresh_standing()

    def action_compare(self) -> None:
        self.comparing = not self.comparing
        self._show()
