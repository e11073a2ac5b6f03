"""The arena: one problem, one kernel; every save is judged."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.timer import Timer
from textual.widgets import ContentSwitcher, TextArea

from arena.errors import ArenaError
from arena.setting_choice import Choice
from arena.templates import starter
from arena.workspace import KernelFile
from problems.specification import Problem
from sandbox.events import AnyEvent, Finished, Setting
from screens.actions import Scope, bindings
from screens.base import BaseScreen
from screens.complaints import explain
from screens.kernel_session import KernelSession
from screens.outside_editor import edit_outside
from screens.services import Services
from screens.themes import FOLDER
from screens.widgets.diff_view import DiffView
from screens.widgets.editor import Editor, Source
from screens.widgets.gpu_strip import GpuStrip
from screens.widgets.headline import Headline, answer_of, waiting_answer, worlds_words
from screens.widgets.key_line import KeyLine
from screens.widgets.log_pane import LogPane
from screens.widgets.pane_title import entitle
from screens.widgets.phase_line import PhaseLine
from screens.widgets.problem_table import Row
from screens.widgets.result_pane import ResultPane
from screens.widgets.view_tabs import ViewTabs

REFRESH_S = 0.1
DRAFT_AFTER_S = 1.0
LEAVE_WITHIN_S = 1.5
"""A second escape within this time leaves the screen."""

SOURCE_VIEWS = ("kernel", "baseline", "diff", "card")
NARROW_VIEWS = (*SOURCE_VIEWS, "result", "log")


def _nothing() -> None:
    """Before the engine is there."""


class ArenaScreen(BaseScreen):
    """Editor and views on the left, the judgement on the right; tabs when there is no room for both."""

    CSS_PATH: ClassVar[Any] = FOLDER / "arena.tcss"
    SCOPE: ClassVar[Scope] = "arena"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("arena")]

    def __init__(
        self,
        services: Services,
        problem: Problem,
        path: Path | None = None,
        *,
        run_at_once: bool = False,
        template: str = "",
    ) -> None:
        super().__init__()
        self.problem = problem
        self.session = KernelSession(services, problem, path)
        self.editor = Editor(id="kernel")
        """Held here, because what is typed must still be at hand when the screen is taken apart."""
        self.view = "kernel"
        self._run_at_once = run_at_once
        self._template = template
        self._draft_timer: Timer | None = None
        self._escaped_at = -LEAVE_WITHIN_S
        self._unsubscribe: Callable[[], None] = _nothing

    def compose(self) -> ComposeResult:
        yield Headline(id="headline")
        yield ViewTabs(id="views")
        with Horizontal(id="panes"):
            with Vertical(id="source-pane"), ContentSwitcher(initial="kernel", id="sources"):
                yield self.editor
                yield Source(name="baseline.py", id="baseline")
                yield DiffView(id="diff")
                yield VerticalScroll(id="card")
            yield ResultPane(id="result-pane")
        yield GpuStrip(id="gpus")
        yield PhaseLine(id="phases")
        yield KeyLine()

    def on_mount(self) -> None:
        self.editor.focus()
        self.set_interval(REFRESH_S, self.draw)
        self.start(self._open(), "open")

    # --- the kernel file -----------------------------------------------------------------------------------

    async def _open(self) -> None:
        await self.arena_app.opened.wait()
        session = self.session
        self._unsubscribe = session.services.engine.subscribe(self.apply)
        text, draft = await asyncio.to_thread(session.open, starter(self.problem, "baseline"))
        self.editor.open_saved(text)
        self.query_one("#baseline", Source).text = self.problem.baseline_source
        self.draw(force=True)
        self.start(self._watch(), "watch")
        if self._template:
            self._replace_text(starter(self.problem, self._template))
        if draft is not None:
            self._offer_draft(draft)
        setting = session.setting()
        if self._run_at_once:
            await self._run(saved=True)
        elif trouble := await session.services.warm(setting):
            self.complain(trouble)

    def _offer_draft(self, draft: str) -> None:
        from screens.dialogs import Question

        def answered(restore: bool | None) -> None:
            if restore:
                self._replace_text(draft)
            elif restore is False:
                self.start(self._discard_draft(draft), "draft")

        question = Question(
            "There is a draft of this kernel",
            f"{len(draft.splitlines())} lines were typed and never saved. Restore them into the editor?",
            yes="restore", no="discard",
        )  # fmt: skip
        self.app.push_screen(question, answered)

    def _replace_text(self, text: str) -> None:
        """As if it were typed: unsaved, and undo brings back what was there."""
        self.editor.replace(text, self.editor.document.start, self.editor.document.end)
        self.editor.move_cursor((0, 0))

    async def _discard_draft(self, draft: str) -> None:
        await self.session.keep(draft)  # even a discarded draft stays among the revisions
        await asyncio.to_thread(self.session.services.workspace.discard_draft, self.session.path)

    async def _watch(self) -> None:
        async for kernel in self.session.outside_saves():
            await self.take_outside_save(kernel)

    async def take_outside_save(self, kernel: KernelFile) -> None:
        """Another program saved the file: show it and run it. Unsaved text stays within reach of undo."""
        if self.editor.dirty:
            await self.session.keep(self.editor.text)
            self.say("kernel changed on disk; ctrl+z brings your unsaved text back")
        self.editor.show_saved(kernel.text)
        await self._run(saved=True)

    @on(Editor.Edited)
    def _edited(self) -> None:
        if self._draft_timer is not None:
            self._draft_timer.stop()
        if self.editor.dirty:
            self._draft_timer = self.set_timer(DRAFT_AFTER_S, self._keep_draft)
        self.session.changed = True

    def _keep_draft(self) -> None:
        if self.editor.dirty:
            self.start(self.session.save_draft(self.editor.text), "draft")

    def on_unmount(self) -> None:
        """Leaving keeps what is typed, whichever way it happens."""
        self._unsubscribe()
        self.session.stop_watching()
        if self.editor.dirty:
            try:
                self.session.services.workspace.save_draft(self.session.path, self.editor.text)
            except ArenaError as error:
                self.log.error(explain(error))

    # --- runs ----------------------------------------------------------------------------------------------

    async def _run(self, *, saved: bool = False, baseline: bool = False) -> None:
        text = self.editor.text
        if not saved and not baseline:
            await self.session.save(text)
            self.editor.mark_saved(text)
        await self.session.run(text, baseline=baseline)

    def apply(self, event: AnyEvent) -> None:
        """Takes an event of the engine, or of a recording."""
        self.session.apply(event)
        if self.is_mounted:
            self.query_one(GpuStrip).hold(self.session.state.phase == "time")
        if isinstance(event, Finished) and self.is_mounted:
            if self.session.services.settings.bell:
                self.app.bell()
            self.start(self._refresh_standings(), "standings")

    async def _refresh_standings(self) -> None:
        await asyncio.sleep(0.2)  # the engine writes its index right after the event
        await self.session.services.refresh_standings()

    # --- drawing -------------------------------------------------------------------------------------------

    def draw(self, force: bool = False) -> None:
        """Brings every widget up to what is known; each redraws itself only if it must."""
        session, state = self.session, self.session.state
        if not (force or session.changed or session.busy) or not self.is_attached:
            return
        session.changed = False
        new_run, lines = session.take_log()
        self.query_one(ResultPane).show(state, lines, new_run)
        self._draw_lines()

    def _draw_lines(self) -> None:
        state, editor = self.session.state, self.editor
        row, column = editor.cursor_location
        title = {"kernel": self.session.path.name, "baseline": "baseline.py"}.get(self.view, self.view)
        place = f"{row + 1}:{column + 1}" if self.view == "kernel" else ""
        entitle(self.query_one("#source-pane"), title, place)
        self.query_one(ViewTabs).show(
            self._views(), self.view, {"kernel": " ● unsaved" if editor.dirty else ""}
        )
        title = f"{self.problem.id} · {self.problem.title}"
        waited = self.session.waited
        answer = answer_of(state, editor.dirty) if waited is None else waiting_answer(state, waited)
        setting = self._setting()
        self.query_one(Headline).show(answer, title, self._meta(setting), self._best())
        gpus = setting.world if isinstance(setting, Setting) and setting.device == "cuda" else 0
        self.query_one(GpuStrip).follow(gpus)
        if self.session.busy:
            note = "esc cancels"
        elif time.monotonic() - self._escaped_at < LEAVE_WITHIN_S:
            note = "nothing is running · esc again for the problems"
        else:
            note = "" if state.run_id else worlds_words(state)
        self.query_one(PhaseLine).show(state, self.session.now, note)

    def _best(self) -> str:
        standing = self.session.services.standings.get(self.problem.id)
        words = f"your best {Row(self.problem, standing).you[0]}" if standing else "not tried yet"
        return f"{words} · {self.problem.category} · {', '.join(self.problem.collectives)}"

    def _setting(self) -> Setting | ArenaError:
        try:
            return self.session.setting()
        except ArenaError as error:
            return error

    def _meta(self, setting: Setting | ArenaError) -> str:
        if isinstance(setting, ArenaError):
            return f"! {setting.message}"
        sizes = " ".join(f"{name}={value}" for name, value in setting.sizes.items())
        return f"{setting.preset} · {setting.dtype} · W={setting.world} · {setting.device} · {sizes}"

    # --- views ---------------------------------------------------------------------------------------------

    def _views(self) -> tuple[str, ...]:
        return SOURCE_VIEWS if self.has_class("-wide") else NARROW_VIEWS

    def show_view(self, view: str) -> None:
        """Brings one view to the front and the keyboard to it."""
        self.view = view
        self.set_class(view == "result", "view-result")
        self.set_class(view == "log", "view-log")
        if view in SOURCE_VIEWS:
            self.query_one("#sources", ContentSwitcher).current = view
        if view == "diff":
            self.query_one(DiffView).show(
                self.problem.baseline_source, self.editor.text, "baseline.py", self.session.path.name
            )
        if view == "card":
            self.start(self._show_card(), "card")
        target = {"result": "failure"}.get(view, view)
        self.query_one(f"#{target}").focus()
        self.draw(force=True)

    async def _show_card(self) -> None:
        card = self.query_one("#card", VerticalScroll)
        if not card.children:
            from textual.widgets import Markdown

            await card.mount(Markdown(self.problem.card, open_links=False))

    def on_resize(self) -> None:
        if self.has_class("-wide") and self.view not in SOURCE_VIEWS:
            self.show_view("kernel")
        self.session.changed = True

    @on(ViewTabs.Chosen)
    def _chosen(self, event: ViewTabs.Chosen) -> None:
        self.show_view(event.name)

    @on(LogPane.Jump)
    def _jump(self, event: LogPane.Jump) -> None:
        self.show_view("kernel")
        self.editor.jump_to(event.line)

    @on(TextArea.SelectionChanged, "#kernel")
    def _cursor_moved(self) -> None:
        self.session.changed = True

    # --- keys ----------------------------------------------------------------------------------------------

    def action_save(self) -> None:
        self.start(self._run(), "run")

    def action_run(self) -> None:
        self.start(self._run(saved=not self.editor.dirty), "run")

    def action_baseline_run(self) -> None:
        self.start(self._run(baseline=True), "run")

    def action_cancel(self) -> None:
        """Cancels the run; twice when nothing runs: back to the problems."""
        if self.session.busy:
            self.start(self.session.services.engine.cancel(), "cancel")
        elif time.monotonic() - self._escaped_at < LEAVE_WITHIN_S:
            self.action_problems()
        else:
            self._escaped_at = time.monotonic()
            self.draw(force=True)
            self.set_timer(LEAVE_WITHIN_S, lambda: self.draw(force=True))

    async def action_edit_outside(self) -> None:
        text = self.editor.text
        if self.editor.dirty:
            await self.session.save(text)
            self.editor.mark_saved(text)
        if trouble := await edit_outside(
            self.app, self.session.services.settings, self.session.path, self.editor.cursor_location[0] + 1
        ):
            self.complain(trouble)

    def action_next_view(self) -> None:
        views = self._views()
        self.show_view(views[(views.index(self.view) + 1) % len(views)] if self.view in views else "kernel")

    def action_duel(self) -> None:
        self.arena_app.plan_duel(self.problem)

    def action_next_pane(self) -> None:
        targets = [
            self.query_one(f"#{self.view if self.view in SOURCE_VIEWS else 'kernel'}"),
            self.query_one("#failure"),
            self.query_one("#log"),
        ]
        shown = [target for target in targets if target.display and target.region.area]
        if shown:
            at = shown.index(self.focused) if self.focused in shown else -1
            shown[(at + 1) % len(shown)].focus()

    def action_setting(self) -> None:
        from screens.setting_dialog import SettingDialog

        self.app.push_screen(SettingDialog(self.session), self._setting_chosen)

    def _setting_chosen(self, choice: Choice | None) -> None:
        if choice is not None:
            self.session.choice = choice
            self.draw(force=True)
            self.start(self._run(saved=not self.editor.dirty), "run")

    def action_history(self) -> None:
        from screens.history import HistoryScreen

        self.app.push_screen(HistoryScreen(self.session, self.editor.text), self._restore)

    def _restore(self, text: str | None) -> None:
        if text is not None:
            self.show_view("kernel")
            self._replace_text(text)
            self.say("restored into the editor; ctrl+s saves and runs it, ctrl+z brings back what was there")

    def action_problems(self) -> None:
        self.dismiss()
