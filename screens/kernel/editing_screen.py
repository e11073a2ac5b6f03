"""Commands on the kernel's text: find, go to a line, wrap, edit in another editor, restore, take over."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from textual import on
from textual.widgets import TextArea

from arena.errors import ArenaError, KernelsLocked
from arena.workspace.kernel_folder import main_file
from problems.specification import Problem
from sandbox.protocol.events import Rival
from sandbox.protocol.kernel_files import Kernel
from screens.app_protocol import AppProtocol
from screens.kernel.kernel_session import KernelSession
from screens.kernel.paned_screen import PanedScreen
from screens.kernel.panes.failure_view import FailureView
from screens.kernel.panes.log_pane import LogPane
from screens.kernel.panes.result_pane import ResultPane
from screens.kernel.source.kernel_buffer import KernelBuffer
from screens.kernel.source.outside_editor import edit_outside
from screens.kernel.source.source_pane import KERNEL, BaselineView, SourcePane
from screens.widgets.editor import Editor
from screens.widgets.source import Source
from screens.widgets.source_bars import FindBar, LineBar, SourceBar


class EditingScreen(PanedScreen):
    """The base of the kernel screen that has its text."""

    def __init__(self, parent_app: AppProtocol, problem: Problem, session: KernelSession) -> None:
        super().__init__(parent_app)
        self.problem = problem
        self.session = session
        self.editor = Editor(id=KERNEL)
        self.buffer = KernelBuffer(session, self.editor)
        self.taken_by = ""
        """Who else edits the kernels of the problem: they can only be read here."""
        self.unread = ""
        """Why the kernel file could not be read: until it can, nothing here may be run or saved."""
        self._release: Callable[[], None] | None = None

    def take_kernels(self) -> None:
        """Takes the kernels of the problem for this screen; where another app has them, the editor is read-only."""
        locks, stem = self.session.services.locks, self.problem.stem
        try:
            locks.take(stem)
            self._release = partial(locks.release, stem)
        except KernelsLocked as error:
            self.taken_by = error.message
            self.editor.read_only = True
            self.complain(f"Read-only: {error.message} → {error.advice}, then open it here again")

    def release_kernels(self) -> None:
        """Lets another app have them."""
        if self._release is not None:
            self._release()
            self._release = None

    def may_edit(self) -> bool:
        """Whether the text may change here; says why not otherwise."""
        if reason := self.taken_by or self.unread:
            self.complain(f"Read-only: {reason}")
        return not reason

    def may_run(self) -> bool:
        """Whether there is a text to run; says why not otherwise."""
        if self.unread:
            self.complain(f"Not run: {self.unread}")
        return not self.unread

    @property
    def text_mark(self) -> str:
        """ " ● unsaved" or " · read-only"; empty for a text as it is on disk."""
        return " · read-only" if self.taken_by or self.editor.read_only else " ● unsaved" if self.editor.dirty else ""

    @property
    def draft_words(self) -> str:
        name = self.problem.stem
        return (
            f"The unsaved text of {name} is kept as a draft: `pkb-arena {name}` offers it." if self.editor.dirty else ""
        )

    # --- texts that take the place of the editor's ---------------------------------------------------------

    def offer_draft(self, draft: str) -> None:
        """Asks whether to restore a text that was never saved."""
        from screens.dialogs.questions import Question

        def answered(restore: bool | None) -> None:
            if restore:
                self.start(self.buffer.restore_draft(draft), "draft")
            elif restore is False:
                self.start(self.buffer.discard_draft(draft), "draft")
            else:
                self.start(self.session.keep(draft), "draft")  # the next draft takes its place

        lines = len(draft.splitlines())
        question = Question(
            "There is a draft of this kernel",
            f"It has {lines} line{'s' * (lines != 1)} and differs from the file. Restore it into the editor?",
            yes="restore", no="discard",
        )  # fmt: skip
        self.app.push_screen(question, answered)

    def action_history(self) -> None:
        from screens.kernel.history import HistoryScreen

        self.app.push_screen(HistoryScreen(self.session, self.editor.file_text), self._restore)

    def _restore(self, chosen: Kernel | Rival | None) -> None:
        if isinstance(chosen, Rival):
            if self.may_run():
                self.start(self.session.run(self.editor.file_text, chosen), "run")
        elif chosen is not None and self.may_edit():
            self.put(chosen, "Restored into the editor.")

    def put(self, kernel: Kernel, said: str) -> None:
        """Puts a kernel into the editor; one whose other files differ is written beside this one, and opened."""
        if kernel.files != self.session.kernel.files:
            self.start(self.parent_app.open_beside(self.problem, self.session.path, kernel), "open")
            return
        self.show_view(KERNEL)
        self.buffer.replace(kernel.source)
        self.say(f"{said} {self.key_words('save')} runs it, ctrl+z undoes it.")

    def action_variants(self) -> None:
        from screens.kernel.variants import VariantsDialog

        def answered(path: Path | None) -> None:
            if path not in (None, self.session.path):
                self.parent_app.open_problem(self.problem, path)

        if self.may_edit():
            workspace = self.session.services.workspace
            self.app.push_screen(VariantsDialog(workspace, self.session.path, self.editor.file_text), answered)

    def take_over(self, kernel: Kernel) -> None:
        """Puts another player's kernel into the editor."""
        if self.may_edit():
            self.put(kernel, "Now in the editor.")

    # --- lines -----------------------------------------------------------------------------------------------

    def show_source_title(self) -> None:
        """The file, and where the cursor is in it; in a width without tabs also the mark that stands on them."""
        mark = self.text_mark if self.has_class("-tiny") else ""
        self.query_one(SourcePane).show_title(self.key_words("copy_path"), len(self.session.kernel.files), mark)

    @on(LogPane.Jump)
    @on(FailureView.Jump)
    def _jump(self, event: LogPane.Jump | FailureView.Jump) -> None:
        self.show_view(KERNEL)
        # Lines above may have come since the run.
        self.editor.jump_to(self.editor.marks.now_at(event.line - 1) + 1)

    @on(TextArea.SelectionChanged, f"#{KERNEL}")
    def _cursor_moved(self) -> None:
        # In the frame of the key itself: a frame of its own would make a key that comes within 1/60 s of it wait for the next.
        self.show_source_title()

    # --- keys ------------------------------------------------------------------------------------------------

    async def action_edit_outside(self) -> None:
        if self.editor.dirty:
            try:
                await self.buffer.save()
            except ArenaError as error:
                self.complain(error.one_line)
                return
        line = self.editor.cursor_location[0] + 1
        if trouble := await edit_outside(self.app, self.services.settings, main_file(self.session.path), line):
            self.complain(trouble)

    async def action_find(self) -> None:
        """In the log when it has the keyboard, else in the text on the left."""
        log = self.query_one(LogPane)
        if log.has_focus:
            await self.query_one(ResultPane).find_in_log()
        else:
            await self._open_bar(FindBar)

    async def action_go_to_line(self) -> None:
        await self._open_bar(LineBar)

    async def _open_bar(self, kind: type[SourceBar]) -> None:
        if self.view not in (KERNEL, BaselineView.NAME):
            self.show_view(KERNEL)
        await self.query_one(SourcePane).open(kind)

    def action_complete(self) -> None:
        if self.view != KERNEL:
            self.show_view(KERNEL)
        self.editor.complete()

    def action_wrap(self) -> None:
        """Long lines are wrapped, or reach beyond the pane."""
        for source in self.query(Source):
            source.soft_wrap = not source.soft_wrap

    def action_copy_path(self) -> None:
        self.app.copy_to_clipboard(str(self.session.path))
        self.say(f"copied: {self.session.path}")
