"""The kernel's texts and the views and panes around it: commands on the text, and which pane is shown and has the focus."""

import asyncio
import shlex
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from textual import on
from textual.content import Content
from textual.widget import Widget
from textual.widgets import TextArea

from arena.errors import ArenaError, KernelsLocked, UsageError
from arena.workspace.kernel_folder import listed_name, main_file, texts_of
from problems.specification import Problem
from sandbox.protocol.events import Contender
from sandbox.protocol.kernel_files import MAIN, Kernel, fault_in, is_file_name
from screens import figures
from screens.app_protocol import AppProtocol, ask
from screens.base import BaseScreen
from screens.kernel.kernel_session import KernelSession
from screens.kernel.panes.log_pane import LogPane
from screens.kernel.panes.result_pane import ResultPane
from screens.kernel.run_update import LineJump
from screens.kernel.source.source_pane import BASELINE, KERNEL, VIEW_LETTERS, SourcePane
from screens.kernel.source.view_tabs import ViewTabs
from screens.kernel_buffer import KernelBuffer
from screens.pane_jump import Stop
from screens.terminal_app import edit_outside
from screens.widgets.editor import Editor
from screens.widgets.source import Source
from screens.widgets.source_bars import FindBar, LineBar, SourceBar, open_bar


class EditingScreen(BaseScreen):
    """The base of the kernel screen, which has a SourcePane, a ResultPane and the ViewTabs."""

    def __init__(self, parent_app: AppProtocol, problem: Problem, session: KernelSession) -> None:
        super().__init__(parent_app)
        self.view = KERNEL
        self.zoomed = False
        """Whether one pane fills the screen."""
        self.problem = problem
        self.session = session
        self.editor = Editor(id=KERNEL)
        self.buffer = KernelBuffer(session, self.editor)
        self.taken_by = ""
        """Message about the other app that edits these kernels; while set, they are read-only here."""
        self.unread = ""
        """Why the kernel file could not be read; while set, nothing may be run or saved here."""
        self._locks = ExitStack()
        """Releases the problem's kernels, so that another app can edit them."""

    def take_kernels(self) -> None:
        """Locks the problem's kernels for this screen. If another app holds the lock, the editor is read-only."""
        locks, stem = self.session.services.locks, self.problem.stem
        try:
            locks.take(stem)
            self._locks.callback(locks.release, stem)
        except KernelsLocked as error:
            self.taken_by = error.message
            self.editor.read_only = True
            self.complain(f"Read-only: {error.message} → {error.advice}, then open it here again")

    def may_edit(self) -> bool:
        """Returns whether the text may be edited here; if not, shows the reason."""
        if reason := self.taken_by or self.unread:
            self.complain(f"Read-only: {reason}")
        return not reason

    def may_run(self) -> bool:
        """Returns whether there is a text to run; if not, shows the reason."""
        if self.unread:
            self.complain(f"Not run: {self.unread}")
        return not self.unread

    @property
    def files(self) -> list[str]:
        """The other files of the kernel's folder, by their path in it."""
        return sorted({*self.session.kernel.files, *self.buffer.editors} - {MAIN, *VIEW_LETTERS, "result", "log"})

    @property
    def front(self) -> Editor:
        """The editor of the file in front, or that of kernel.py."""
        return self.buffer.editors.get(self.view, self.editor)

    def show_files(self) -> None:
        """Follows a change of the kernel's files. If the file in front is gone, shows the kernel."""
        if self.view not in self.views():
            self.show_view(KERNEL)
        self.query_one(SourcePane).follow_editor()

    def mark_of(self, editor: Editor) -> str:
        """ " ● unsaved" or " · read-only"; empty if the text equals the file."""
        return " · read-only" if self.taken_by or editor.read_only else " ● unsaved" if editor.dirty else ""

    @property
    def draft_of(self) -> str:
        return self.problem.stem if self.buffer.dirty else ""

    @property
    def reopen(self) -> str:
        own = self.session.services.workspace.kernel_path(self.problem)
        path = [] if self.session.path.parent == own.parent else [str(self.session.path)]
        return shlex.join(["pkb-arena", self.problem.stem, *path])

    def keep_text(self) -> None:
        self.buffer.keep_drafts()

    # --- texts that replace the editor's -------------------------------------------------------------------

    async def offer_drafts(self) -> None:
        """Asks, one after the other, whether to restore the texts that were never saved: that of kernel.py first."""
        from screens.dialogs.questions import Question

        for name in [MAIN, *self.files]:
            if (draft := self.buffer.draft(name)) is None:
                continue
            if name != MAIN:
                self.show_view(name)
            lines = len(draft.splitlines())
            kept = figures.age_words(self.session.services.workspace.draft_written(self.session.draft_path(name)))
            question = Question(
                f"There is a draft of {'this kernel' if name == MAIN else name}",
                f"A text of {kept} with {lines} line{'s' * (lines != 1)} differs from the file. Restore it into the editor?",
                yes="restore", no="discard",
            )  # fmt: skip
            restore = await self.app.push_screen_wait(question)
            await self.buffer.settle_draft(draft, name, restore=restore)

    def action_history(self) -> None:
        from screens.kernel.history import HistoryScreen

        self.app.push_screen(HistoryScreen(self.session, self.buffer.kernel, self.view), self._restore)

    def _restore(self, chosen: Kernel | Contender | None) -> None:
        if isinstance(chosen, Contender):
            if self.may_run():
                if not self.has_class("-wide"):
                    self.go_to("answer")
                self.start(self.session.run(self.buffer.kernel, chosen), "run")
        elif chosen is not None and self.may_edit():
            self.put(chosen, "Restored into the editor.")

    def put(self, kernel: Kernel, said: str) -> None:
        """Puts a kernel into the editors. If it has other files, writes it beside this kernel and opens it."""
        here = self.buffer.kernel
        changed = [name for name, text in texts_of(kernel).items() if text != texts_of(here).get(name)]
        if kernel.files.keys() != here.files.keys() or any(self.buffer.open_file(name).read_only for name in changed):
            self.start(self.parent_app.open_beside(self.problem, self.session.path, kernel), "open")
            return
        if self.buffer.dirty:  # undo ends with the app
            self.start(self.session.keep(here), "keep")
        for name in reversed(changed or [MAIN]):
            self.show_view(KERNEL if name == MAIN else name)
            self.buffer.replace(texts_of(kernel)[name], name)
        self.say(f"{said} {self.key_words('save')} runs it, {'ctrl+z' if self.front.vim is None else 'u'} undoes it.")

    def action_variants(self) -> None:
        """Opens, copies or renames a kernel of this problem."""
        if self.may_edit():
            self.start(self._list_kernels(), "kernels", exclusive=True)

    async def _list_kernels(self) -> None:
        from screens.kernel.variants import NamesDialog

        session, here, kernel = self.session, self.session.path, self.buffer.kernel
        workspace = session.services.workspace

        def read() -> dict[Path, Content]:
            return {path: session.told_of(kernel if path == here else path) for path in workspace.variants(here)}

        def answer(what: str, name: str, typed: str) -> Path | None:
            if what == "add":
                return workspace.copy(here, kernel, typed)
            if what == "open":
                return paths[name] if paths[name] != here else None
            new = workspace.rename(paths[name], typed)
            if paths[name] == here:
                workspace.save_draft(new, kernel.source)
            return new

        with self.parent_app.keys_wait():
            told = await asyncio.to_thread(read)
            paths = {listed_name(path): path for path in told}
            names, example = dict(zip(paths, told.values(), strict=True)), "two-shot, or two-shot/ for a folder"
            dialog = NamesDialog("Kernels", names, listed_name(here), example, answer)
            ask(self, dialog, partial(self.parent_app.open_problem, self.problem))

    def action_files(self) -> None:
        """Opens, adds, renames or deletes a file of the kernel's folder."""
        from screens.kernel.variants import NamesDialog

        kernel = self.buffer.kernel

        def answer(what: str, name: str, typed: str) -> tuple[str, str]:
            new = name if what == "open" else "" if what == "delete" else typed
            if what in ("add", "rename") and (not is_file_name(new) or fault_in(kernel.with_text("", new))):
                advice = "use letters, digits, and . _ - + @ ="
                raise UsageError(f"{new!r} cannot name a file of a kernel", advice)
            return new if what == "add" else name, new

        if not self.session.path.is_dir():
            self.say(
                f"This kernel is one file. {self.key_words('variants')} and a name with / copies it into a folder."
            )
        elif self.may_edit():
            names, example = dict.fromkeys(sorted(kernel.files), Content("")), "ops.cu, or csrc/ops.cu"
            dialog = NamesDialog("Files beside kernel.py", names, self.view, example, answer, deletes=True)
            ask(self, dialog, lambda names: self.start(self._move_file(*names), "save"))

    async def _move_file(self, name: str, new: str) -> None:
        await self.buffer.move(name, new)
        self.show_files()
        if new:
            self.show_view(new)

    def take_over(self, kernel: Kernel) -> None:
        """Puts another player's kernel into the editor."""
        if self.may_edit():
            self.put(kernel, "Now in the editor.")

    # --- lines -----------------------------------------------------------------------------------------------

    def show_source_title(self) -> None:
        """Shows the file name and the cursor position; where the tabs are hidden, also `text_mark`."""
        mark = self.mark_of(self.front) if self.has_class("-tiny") else ""
        self.query_one(SourcePane).show_title(self.key_words("copy_path"), mark)

    @on(LineJump)
    def _jump(self, event: LineJump) -> None:
        self.show_view(event.file if event.file in self.files else KERNEL)
        # Lines above may have been added since the run.
        self.front.jump_to(self.front.marks.now_at(event.line - 1) + 1)

    @on(TextArea.SelectionChanged, "Editor")
    def _cursor_moved(self) -> None:
        # Drawn in the key's own frame: a second frame would delay a key that follows within 1/60 s.
        self.show_source_title()

    # --- keys ------------------------------------------------------------------------------------------------

    async def action_edit_outside(self) -> None:
        if self.buffer.dirty:
            try:
                await self.buffer.save()
            except ArenaError as error:
                self.complain(error.one_line)
                return
        file = self.session.path / self.view if self.view in self.files else main_file(self.session.path)
        line = self.front.cursor_location[0] + 1
        if trouble := await edit_outside(self.app, self.services.settings, file, line):
            self.complain(trouble)

    async def action_find(self) -> None:
        """Opens the find bar: for the log if it has the focus, else for the text on the left."""
        log = self.query_one(LogPane)
        if log.has_focus:
            await open_bar(self.query_one(ResultPane), log)
        else:
            await self._open_bar(FindBar)

    async def action_go_to_line(self) -> None:
        await self._open_bar(LineBar)

    async def _open_bar(self, kind: type[SourceBar]) -> None:
        if self.view not in (KERNEL, BASELINE, *self.files):
            self.show_view(KERNEL)
        await self.query_one(SourcePane).open(kind)

    def action_complete(self) -> None:
        if self.view not in (KERNEL, *self.files):
            self.show_view(KERNEL)
        self.front.complete()

    def action_wrap(self) -> None:
        """Switches the wrapping of long lines on or off."""
        for source in self.query(Source):
            source.soft_wrap = not source.soft_wrap

    def action_copy_path(self) -> None:
        self.app.copy_to_clipboard(str(self.session.path))
        self.say(f"copied: {self.session.path}")

    # --- views and panes -------------------------------------------------------------------------------------

    @property
    def idle_actions(self) -> frozenset[str]:
        return frozenset()

    def draw(self, force: bool = False) -> None:
        """Updates every widget."""
        raise NotImplementedError

    @property
    def left_views(self) -> tuple[str, ...]:
        """The views on the left: the kernel, the other files of its folder, and the others."""
        return (KERNEL, *self.files, *[*VIEW_LETTERS][1:])

    def views(self) -> tuple[str, ...]:
        return self.left_views if self.has_class("-wide") else (*self.left_views, "result", "log")

    @property
    def answer_shown(self) -> bool:
        """Whether the answer pane is on the screen. Reads classes, because styles are updated later."""
        if self.zoomed:
            return self.query_one(ResultPane).pane("answer").has_class("zoomed")
        return self.has_class("-wide") or self.view == "result"

    def show_view(self, view: str) -> None:
        """Brings one view to the front and gives it the focus."""
        self.view = view
        self.set_class(view == "result", "view-result")
        self.set_class(view == "log", "view-log")
        if view in self.left_views:
            self._focus(self.query_one(SourcePane).bring_up(view))
        else:
            self._focus(self.query_one(ResultPane).pane("answer" if view == "result" else view).front)
        self.draw(force=True)

    def go_to(self, name: str) -> None:
        """Gives the focus to a view or to a pane of the result."""
        if name in self.left_views:
            self.show_view(name)
            return
        if not self.has_class("-wide"):
            self.show_view("log" if name == "log" else "result")
        self._focus(self.query_one(ResultPane).pane(name).front)

    def _focus(self, target: Widget) -> None:
        """Focuses a widget. If one pane fills the screen, first shows the widget's pane instead."""
        if self.zoomed:
            self.zoom(target)
        with self.parent_app.keys_wait():  # the next key is for it
            self.call_after_refresh(target.focus)  # until then a hidden widget cannot take the focus

    def zoom(self, target: Widget | None) -> None:
        """Fills the screen with the pane of `target`; None: shows all panes again."""
        result = self.query_one(ResultPane)
        pane = result.pane_of(target)
        self.zoomed = target is not None
        self.set_class(self.zoomed and pane is None, "zoom-left")
        self.set_class(self.zoomed and pane is not None, "zoom-right")
        for each in result.panes:
            each.set_class(each is pane, "zoomed")
        self.draw(force=True)

    @on(ViewTabs.Chosen)
    def _chosen(self, event: ViewTabs.Chosen) -> None:
        self.show_view(event.name)

    def action_next_view(self) -> None:
        views = self.views()
        self.show_view(views[(views.index(self.view) + 1) % len(views)] if self.view in views else KERNEL)

    def go_to_next(self) -> None:
        """Moves the focus from the view on the left through the panes of the result, and then back."""
        result = self.query_one(ResultPane)
        names = [self.view if self.view in self.left_views else KERNEL, *(pane.NAME for pane in result.in_use)]
        here = result.pane_of(self.focused)
        at = names.index(here.NAME) if here is not None and here.NAME in names else 0
        self.go_to(names[(at + 1) % len(names)])

    action_next_pane = go_to_next

    def stops(self) -> list[Stop]:
        """Returns every view and every pane, with the position of its jump letter."""
        tabs = self.query_one(ViewTabs)
        letters = VIEW_LETTERS | {file: str(at) for at, file in enumerate(self.files[:9], 1)}
        stops = [Stop(letter, name, name, tabs.letter_at(name)) for name, letter in letters.items()]
        for pane in self.query_one(ResultPane).in_use:
            tab = tabs.letter_at("result" if pane.NAME == "answer" else pane.NAME)  # on a narrow screen
            at = pane.region.offset if pane.region.area else tab
            title = str(pane.border_title or pane.TITLE).partition(",")[0].lower()
            stops.append(Stop(pane.LETTER, pane.NAME, title, at))
        return stops

    def zoom_focused(self) -> None:
        self.zoom(None if self.zoomed else self.focused)
