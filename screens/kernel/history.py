"""The history: every revision of the user's kernels, with its runs and its code, to restore or to compare with the editor."""

from pathlib import Path
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import DataTable, Sparkline

from arena.records.run_record import RunRecord, Unrun
from arena.records.run_table import best_times
from arena.workspace.kernel_folder import shown_text, texts_of
from arena.workspace.named_kernels import BASELINE, starter
from sandbox.protocol.events import Contender
from sandbox.protocol.kernel_files import MAIN, Kernel
from sandbox.protocol.verdict import Verdict
from screens import figures
from screens.dialogs.runs import RunsDialog, id_of
from screens.kernel.kernel_session import KernelSession
from screens.widgets.source import SOURCE_STYLES, Source
from screens.widgets.source_bars import FindBar, open_bar
from screens.widgets.text_lines import PlainStatic

_KEPT = "Every kernel that you save or run is kept here, with its verdict and speedup."


class HistoryScreen(RunsDialog):
    """Dismisses with the kernel to restore, or with the revision to time the editor's text against."""

    CSS_PATH: ClassVar[Any] = [*RunsDialog.CSS_PATH, SOURCE_STYLES, Path(__file__).with_name("history.tcss")]
    HEAD: ClassVar[str] = "History"
    KEYS: ClassVar[str] = "enter restore · space diff · t time · "
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+f", "find", "find in the preview"),
        Binding("space", "compare", "compare with the editor, or with a marked one"),
        Binding("f", "one_file", "only the file in front, or all files"),
        Binding("t", "time", "time the editor's kernel against it"),
    ]

    def __init__(self, session: KernelSession, kernel: Kernel, file: str) -> None:
        """kernel: as it is in the editors. file: the one in front."""
        super().__init__(session.services, session.problem)
        self.session, self.editors = session, kernel
        self.file = file if file in kernel.files else MAIN
        self.one_file = False
        """Whether only `file` is shown, compared and restored, and only the runs before which it changed are listed."""
        self.comparing = False
        """Whether the revision is compared with the editor's text."""
        self._sure_of: RunRecord | Unrun | None = None
        """The run for which `t` was pressed, and needs a second press."""

    def on_mount(self) -> None:
        self._known = self.session.records
        self.set_interval(0.5, self._read_again)

    async def _read_again(self) -> None:
        """Lists a run that has ended meanwhile."""
        if self.session.records is not self._known and self._table.has_focus:
            self._known = self.session.records
            await self._read()

    def compose_below(self) -> ComposeResult:
        with Horizontal(id="best"):
            yield PlainStatic("", id="best-words")
            yield Sparkline([], id="best-times")
        yield Source(id="revision")

    def read_entries(self) -> list[RunRecord | Unrun]:
        ran = self.services.store.history(self.problem.id)
        known = {entry.sha256 for entry in ran} | {Kernel(starter(self.problem, BASELINE)).sha256}
        kept = self.services.workspace.kept_of(self.session.path).items()
        unrun = [Unrun(created, sha256) for sha256, created in kept if sha256 not in known]
        found: list[RunRecord | Unrun] = sorted([*ran, *unrun], key=lambda entry: entry.created)
        return list(reversed(self._changes_of_file(found) if self.one_file else found))

    def _changes_of_file(self, entries: list[RunRecord | Unrun]) -> list[RunRecord | Unrun]:
        """Of runs, the oldest first, those before which the file changed."""
        changed, last = [], None
        for entry in entries:
            kernel = self.services.workspace.kernel(entry.sha256)
            text = texts_of(kernel).get(self.file) if kernel is not None else None
            if text not in (None, last):
                changed.append(entry)
                last = text
        return changed

    async def _read(self) -> None:
        await super()._read()
        ran = [each for each in self._all if isinstance(each, RunRecord)]
        best = best_times(self.session.in_setting(ran))
        self.query_one("#best").display = len({*best}) > 1
        self.query_one("#best-times", Sparkline).data = best
        if best:
            self.query_one("#best-words", PlainStatic).update(f"best so far, µs  {best[0]:.1f} → {best[-1]:.1f}  ")

    def is_here(self, entry: RunRecord | Unrun) -> bool:
        return entry.sha256 == self.editors.sha256

    def runs_now(self, entry: RunRecord | Unrun) -> bool:
        return isinstance(entry, Unrun) and self.is_here(entry) and self.session.judges(self.editors)

    @property
    def _beside(self) -> tuple[Kernel, str]:
        """What the revision under the cursor is compared with: a marked one, else the editor's kernel; with its name."""
        marked = (each.sha256 for each in self._all if id_of(each) in self._marked and each is not self.current)
        for sha256 in marked:
            if (kernel := self.services.workspace.kernel(sha256)) is not None:
                return kernel, f"revision {sha256[:8]}"
        return self.editors, "editor"

    def show_current(self) -> None:
        """Shows the revision under the cursor."""
        super().show_current()
        entry, kernel = self.current, self._kernel
        if entry != self._sure_of:
            self._sure_of = None
        source = self.query_one("#revision", Source)
        source.display = entry is not None
        if entry is None:
            if not self._all:
                words = "A run is listed when it has ended." if self.session.busy else "Nothing kept yet."
                self.query_one("#said", PlainStatic).update(f"{words} {_KEPT}")
            return
        if self.editors.files and not (isinstance(entry, RunRecord) and entry.voided):
            one = f"{len(self.entries)} changes of {self.file}. f shows all files."
            all_ = f"{self.counted}{self._alike}. f shows only {self.file}."
            self.query_one("#said", PlainStatic).update(one if self.one_file else all_)
        name = f"revision {entry.sha256[:8]}"
        if kernel is None:
            source.show(f"# the text of {name} is not in the workspace", MAIN)
        elif self.comparing:
            beside, of = self._beside
            source.compare(self._shown(kernel), self._shown(beside), name, of)
        elif self.one_file:
            source.show(self._shown(kernel)[self.file], self.file)
        else:
            source.show(shown_text(kernel), MAIN)

    def _shown(self, kernel: Kernel) -> dict[str, str]:
        return {name: text for name, text in texts_of(kernel).items() if not self.one_file or name == self.file}

    @property
    def _kernel(self) -> Kernel | None:
        """The kernel of the run under the cursor; None if its text is not in the workspace."""
        kernel = self.services.workspace.kernel(self.current.sha256) if self.current is not None else None
        return kernel if kernel is not None and (self.file in self._shown(kernel) or not self.one_file) else None

    @on(DataTable.RowSelected, "#runs")
    def _selected(self) -> None:
        if (kernel := self._kernel) is not None:
            self.dismiss(self.editors.with_text(self._shown(kernel)[self.file], self.file) if self.one_file else kernel)
        else:
            words = "The text of this revision is not in the workspace."
            self.app.notify(words, severity="warning", markup=False)

    async def action_find(self) -> None:
        """Opens the find bar for the text of the revision under the cursor."""
        if not self.entries:
            return
        self.comparing = False
        self.show_current()
        await open_bar(self.query_one(".dialog"), self.query_one("#revision", Source))

    def action_back(self) -> None:
        """Closes the find bar or the search if one is open, else the history."""
        for bar in self.query(FindBar):
            if bar.source is not None:
                bar.close()
                self.query_one("#runs").focus()
                return
        super().action_back()

    def action_time(self) -> None:
        """Times the editor's kernel against the revision under the cursor, in one run. Asks for a second press if in doubt."""
        entry, kernel = self.current, self._kernel
        if entry is not None and kernel is not None:
            said = figures.verdict_words(entry.verdict) if isinstance(entry, RunRecord) else "not judged yet"
            passed = isinstance(entry, RunRecord) and entry.verdict is Verdict.PASS
            wrong = "" if passed else f"This revision is {said}."
            same = "It is the text in the editor." if self.is_here(entry) else ""
            doubt = " ".join(filter(None, [wrong, same, "A run is in progress." if self.session.judging else ""]))
            if doubt and self._sure_of != entry:
                self._sure_of = entry
                words = f"{doubt} t again times the editor's kernel against it."
                self.app.notify(words, severity="warning", markup=False)
                return
            name = f"revision-{entry.sha256[:8]}{f'/{MAIN}' if kernel.files else '.py'}"
            self.dismiss(Contender(name, kernel.source, kernel.files))

    async def follow(self) -> None:
        await super().follow()
        await self.session.refresh_standing()

    async def action_one_file(self) -> None:
        self.one_file = not self.one_file
        await self._read()

    def action_compare(self) -> None:
        self.comparing = not self.comparing
        self.show_current()
