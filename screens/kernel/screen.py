"""The kernel screen: one problem, one kernel, one run for every save.

Keys and messages arrive here. `EditingScreen` and `KernelBuffer` handle the text, `KernelSession` the runs,
`SourcePane` and `ResultPane` the views and panes.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal

from arena.errors import ArenaError, UsageError
from arena.records.run_record import RunRecord
from arena.setting_choice import Choice
from arena.workspace.kernel_folder import main_file, shown_name
from problems.specification import Problem
from sandbox.machine.devices import kind_of
from sandbox.protocol.events import AnyEvent, Checked, Finished, Judged, RunStarted, Setting
from sandbox.protocol.kernel_files import MAIN
from screens import figures
from screens.actions import Scope, bindings
from screens.app_protocol import AppProtocol, ask
from screens.base import AGAIN_WITHIN_S, COMPLAINED_S
from screens.kernel.editing_screen import EditingScreen
from screens.kernel.gpu_strip import GpuStrip
from screens.kernel.headline import (
    OPENING,
    Answer,
    KernelHeadline,
    answer_of,
    best_words,
    earlier_answer,
    outdated,
    queued_answer,
    setting_words,
    worlds_words,
)
from screens.kernel.kernel_session import KernelSession
from screens.kernel.panes.result_pane import ResultPane
from screens.kernel.phase_line import PhaseLine
from screens.kernel.source.source_pane import KERNEL, SourcePane
from screens.kernel.source.view_tabs import ViewTabs
from screens.widgets.editor import Editor
from screens.widgets.key_line import KeyLine
from screens.widgets.source import SOURCE_STYLES
from screens.widgets.source_bars import close_bar
from screens.widgets.text_lines import follow_width

REFRESH_S = 0.1
CHECK_FILE_S = 1.0


class KernelScreen(EditingScreen):
    """Editor and views on the left, the result on the right; tabs if there is no room for both."""

    CSS_PATH: ClassVar[Any] = [SOURCE_STYLES, Path(__file__).with_name("screen.tcss")]
    SCOPE: ClassVar[Scope] = "kernel"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("kernel")]
    ONLY_SHOWS: ClassVar[bool] = False
    """Whether no key runs a kernel here. Then no line names such a key."""

    def __init__(
        self,
        parent_app: AppProtocol,
        problem: Problem,
        path: Path | None = None,
        *,
        run_at_once: bool = False,
        text: str = "",
    ) -> None:
        """`path` None means the user's own kernel in the workspace. `text` goes into the editor, unsaved."""
        super().__init__(parent_app, problem, KernelSession(parent_app.services, problem, path))
        self.VERTICAL_BREAKPOINTS = [(0, "-low"), (38, "-high")]
        self._run_at_once = run_at_once
        self._text = text
        self._resting = False
        """Whether another player uses the engine; see `rest`."""
        self._others: set[str] = set()
        """Ids of runs of other players and kernels, which may still end while this screen is in front."""
        self._unsubscribe: Callable[[], None] = lambda: None  # there is no engine yet
        self._asked = ("", "")
        """The earlier run that was last asked for, and the run that was shown then."""

    def compose(self) -> ComposeResult:
        yield KernelHeadline(id="headline")
        yield ViewTabs(id="views")
        with Horizontal(id="panes", classes="panes"):
            yield SourcePane(self.buffer, self.problem, main_file(self.session.path), id="source-pane")
            yield ResultPane(id="result-pane")
        yield GpuStrip(id="gpus")
        yield PhaseLine(id="phases")
        yield KeyLine()

    def on_mount(self) -> None:
        self.editor.focus()
        follow_width(self.query_one(SourcePane), partial(self.draw, force=True))
        self.set_interval(REFRESH_S, self.draw)
        self.set_interval(CHECK_FILE_S, self._check_file)
        self.start(self._open(), "open")

    # --- the kernel's text ---------------------------------------------------------------------------------

    async def _open(self) -> None:
        await self.parent_app.opened.wait()
        self._others |= self.services.engine.unended  # started by earlier screens; see _take_up_run
        self._unsubscribe = self.services.engine.subscribe(self.apply)
        for event in self.services.engine.worlds.values():  # an earlier screen may have started them
            self.apply(event)
        self.take_kernels()
        await self._read()
        self._take_up_run()
        self.start(self.session.read_records(), "records")
        self.draw(force=True)
        self.start(self._watch(), "watch")
        if not self.taken_by:
            self.start(self.offer_drafts(), "drafts")
        setting = self.session.setting()
        if self._run_at_once:
            await self._run(save=False)
        elif trouble := await self.services.warm(setting):
            self.complain(trouble)

    async def _show_earlier(self, record: RunRecord) -> None:
        """Shows the earlier run of the editor's text in all panes, and its failure at its line."""
        for event in await self.session.show_earlier(record):
            self._mark(event)

    def _take_up_run(self) -> None:
        """Shows the run of this kernel that an earlier screen started: its progress, or its verdict."""
        run, session = self.session.last_run, self.session
        if run is None or session.busy or session.state.run_id:
            return
        self._others.discard(run.run_id)
        session.take_up(run)
        for event in run.events_so_far:
            self._mark(event)
        self.query_one(GpuStrip).hold(session.state.phase == "time")

    async def _read(self) -> None:
        """Reads the kernel file into the editor, which is read-only until that succeeds."""
        read_only = self.editor.read_only
        while True:
            try:
                with self.parent_app.keys_wait():  # what is typed is for the text of the file
                    await self.buffer.open("" if self.taken_by else self._text)
            except ArenaError as error:
                self.unread, self.editor.read_only = error.message, True
                self.draw(force=True)
                if not isinstance(error, UsageError):
                    raise
                self.complain(f"{error.one_line}. The editor shows it once it can be read")
                await self.session.readable()
            else:
                self.unread, self.editor.read_only = "", read_only
                return

    async def _watch(self) -> None:
        async for _ in self.buffer.outside_saves(self):
            self.show_files()
            if not self._resting and not self.taken_by:
                self.start(self._run(save=False, on_disk=True), "run")  # its own task: an error must not end the watch

    def _check_file(self) -> None:
        """Says when the kernel's file was deleted, and keeps its text as a draft."""
        if not self.editor.saved_text or self.taken_by or self.unread:
            return
        before = self.editor.dirty
        if self.buffer.notices_deletion():
            name = main_file(self.session.path).name
            self.complain(f"{name} was deleted. Its text is unsaved now; {self.key_words('save')} writes it again.")
            self.start(self.buffer.keep_draft(), "draft")
        self.session.changed |= self.editor.dirty != before

    @on(Editor.Changed)
    def _edited(self, event: Editor.Changed) -> None:
        if isinstance(event.text_area, Editor):
            self.buffer.edited(lambda: self.start(self.buffer.keep_draft(), "draft"))
            self.session.changed = True

    def on_unmount(self) -> None:
        """Keeps unsaved text, however the screen is left."""
        self._unsubscribe()
        self.session.stop_watching()
        try:
            self.buffer.keep_drafts()
        except ArenaError as error:
            self.log.error(error.one_line)
        self._locks.close()

    # --- runs ----------------------------------------------------------------------------------------------

    async def _run(self, *, save: bool, on_disk: bool = False, leaves: bool = False) -> None:
        """Runs the kernel. save: saves the unsaved files first. on_disk: runs the saved texts. leaves: then leaves."""
        self.session.queue()
        self.draw()  # before the file is written and an earlier run has ended
        try:
            if save:
                await self._save()
            kernel = await self.buffer.current()
            await self.session.run(self.session.kernel if on_disk else kernel, queued=True)
            if leaves:
                self.action_problems()
        except ArenaError:
            self.session.unqueue()
            raise

    async def _save(self) -> None:
        """Saves the kernel. If the file is no longer text, a second press replaces it and keeps a copy."""
        try:
            await self.buffer.save(replace=self.was_pressed("save"))
        except UsageError as error:
            self.note_press("save", COMPLAINED_S)  # while the error is shown
            advice = f"{self.key_words('save')} again replaces it and keeps a copy"
            raise UsageError(error.message, advice) from None
        self.forget_press("save")

    def apply(self, event: AnyEvent) -> None:
        """Applies an event of the engine, or of a recording."""
        own = self.session.state.run_id
        run_id = getattr(event, "run_id", own)
        if self._resting and run_id != own:
            self._others.add(run_id)
        if run_id in self._others:
            self._refresh_standing(event)  # the run may be of this problem
            return
        others, told = self.session.others, self.session.state.measuring_on
        at_other_size = others.takes(event, own)
        if at_other_size:
            self.session.changed = True
        else:
            self.session.apply(event)
        for strip in self.query(GpuStrip):  # none while the screen is left
            strip.hold(self.session.state.phase == "time" or others.timing)
        if at_other_size:
            return
        self._mark(event)
        if isinstance(event, Judged | Finished) and not told and self.is_mounted and self.services.settings.bell:
            self.app.bell()
        if not (isinstance(event, Judged) and told):  # of measuring on, only the first and the last result are stored
            self._refresh_standing(event)

    def _refresh_standing(self, event: AnyEvent) -> None:
        if isinstance(event, Judged | Finished) and self.is_mounted:
            self.start(self.session.refresh_standing(event.run_id), "standings")

    def _mark(self, event: AnyEvent) -> None:
        """Marks the line of the failure in its file's gutter, until the next run begins."""
        failure, place = self.session.state.failure, self.session.place
        if isinstance(event, RunStarted) or failure is None or place is None:
            for editor in self.buffer.editors.values():
                editor.mark_lines({})
        elif isinstance(event, Checked | Finished) and place[0] in (MAIN, *self.files):
            self.buffer.open_file(place[0]).mark_lines({place[1] - 1: failure.message})

    def rest(self) -> None:
        """Cancels this screen's run, and ignores other players' runs until this screen is in front again."""
        if self.session.busy:
            self.start(self.session.cancel(), "cancel")
        self.session.unqueue()
        self._resting = True

    def on_screen_resume(self) -> None:
        self.session.changed = True  # a dialog may have changed a setting
        if self._resting and self.app.screen is self:  # not if a dialog closed to open the other player's screen
            self._resting = False
            self._others |= self.services.engine.unended  # the other player's runs, begun or not

    # --- drawing -------------------------------------------------------------------------------------------

    def draw(self, force: bool = False) -> None:
        """Updates every widget; each redraws itself only if something changed."""
        if self.is_attached and (force or self.session.changed or self.session.busy):
            self.query_one(ResultPane).show(self.session.take_update(with_keys=not self.ONLY_SHOWS))
            self._draw_lines()

    def _draw_lines(self) -> None:
        session, state, kernel = self.session, self.session.state, self.buffer.kernel
        self.show_source_title()
        marks = {KERNEL if name == MAIN else name: self.mark_of(each) for name, each in self.buffer.editors.items()}
        zoomed = f"one pane · {self.key_words('zoom')} shows all" if self.zoomed else ""
        self.query_one(ViewTabs).show(self.views(), self.view, marks, zoomed)
        setting = self._setting()
        of = session.verdict_of(kernel) if session.waited is None else ""
        result = self.query_one(ResultPane)
        result.set_class(bool(of) or session.from_journal, "outdated")
        told_of = state.setting or setting
        result.set_heights(told_of.world if isinstance(told_of, Setting) else None)
        yours, house = (each.get(self.problem.id) for each in (self.services.standings, self.services.house))
        best = best_words(self.problem, yours, house, "" if self.ONLY_SHOWS else self.key_words("duel"))
        title = f"{self.problem.id} · {self.problem.title}"
        self.query_one(KernelHeadline).show(self._answer(of), title, setting_words(setting), best)
        gpus = setting.world if isinstance(setting, Setting) and kind_of(setting.device).on_gpus else 0
        self.query_one(GpuStrip).follow(gpus)
        self.query_one(PhaseLine).show(state, session.now, self._note(), session.most_s)

    def _answer(self, of: str) -> Answer:
        """What the headline says. of: names the text that was judged, if it is not the one in the editor."""
        session, state, kernel = self.session, self.session.state, self.buffer.kernel
        keymap, run = self.services.settings.keymap, self.key_words("run")
        if session.waited is not None:
            answer = queued_answer(state, session.waited)
        else:
            answer = answer_of(state, keymap, self.buffer.dirty) if state.run_id or session.records_known else OPENING
        asks = not state.run_id or session.from_journal or of.startswith("revision")
        earlier = session.earlier(kernel) if asks and not session.busy else None
        if earlier is not None:
            answer = earlier_answer(earlier, run, kernel.sha256)
            if earlier.run_id != state.run_id and self._asked != (earlier.run_id, state.run_id):
                self._asked = earlier.run_id, state.run_id
                self.start(self._show_earlier(earlier), "earlier")
        elif of:
            answer = outdated(answer, of, run)
        if not self.answer_shown:
            answer = replace(answer, place="")
        return replace(answer, asks="", of="") if self.ONLY_SHOWS else answer

    def _setting(self) -> Setting | ArenaError:
        try:
            return self.session.setting()
        except ArenaError as error:
            return error

    def _note(self) -> str:
        cancel, pressed = self.key_words("cancel"), self.was_pressed("cancel")
        measuring_on = self.session.state.measuring_on
        if self.session.judging:
            queued = "queued · " if self.session.waited is not None else ""
            return f"{queued}{cancel} {'again' if pressed else 'twice'} cancels"
        if pressed:
            return f"{f'{cancel} again' if self.front.vim is None else ':q'}: problems"
        if measuring_on:
            return f"measuring on · {self.key_words('end_measuring')} ends it"
        return "" if self.session.state.run_id else worlds_words(self.session.state)

    # --- views ---------------------------------------------------------------------------------------------

    def on_resize(self) -> None:
        """Keeps the focused pane focused and visible."""
        pane = self.query_one(ResultPane).pane_of(self.focused)
        left = self.view in self.left_views
        if self.has_class("-wide") and not left:
            self.show_view(KERNEL)
        if pane is not None and left != self.has_class("-wide"):
            self.go_to(pane.NAME)
        self.session.changed = True

    # --- keys ----------------------------------------------------------------------------------------------

    @on(Editor.Asked)
    def _asked_by_vim(self, event: Editor.Asked) -> None:
        """Saves, leaves, or both. A save runs the kernel, even after this screen."""
        if not event.saves or (event.leaves and not self.buffer.dirty):
            self.action_problems()
        elif not event.leaves:
            self.action_save()
        elif self.may_edit():
            self.start(self._run(save=True, leaves=True), "run")

    def action_save(self) -> None:
        if not self.buffer.dirty and self.session.judges(self.buffer.kernel):
            self.say(f"Already running: nothing has changed since. {self.key_words('run')} starts it again")
        elif self.may_edit():
            self.start(self._run(save=True), "run")

    def action_run(self) -> None:
        if self.may_run():
            self.start(self._run(save=self.buffer.dirty), "run")

    def action_baseline_run(self) -> None:
        self.start(self.session.run_baseline(), "run")

    def action_measure_on(self) -> None:
        if self._has_run("Measure longer"):
            self.start(self._measure_on(), "run")

    async def _measure_on(self) -> None:
        budget_s = await self.session.measure_on()
        of = self.session.verdict_of(self.buffer.kernel)
        self.say(
            f"Measuring {of or 'this text'} again{', without changes since,' * bool(of)} for {budget_s:g} s or longer"
        )

    def action_end_measuring(self) -> None:
        if self.session.state.measuring_on:
            self.start(self.session.cancel(), "cancel")
        else:
            self.say("Nothing is measured on")

    def action_other_sizes(self) -> None:
        if self._has_run("Judge at other sizes"):
            self.start(self.session.judge_other_sizes(), "other sizes")

    def _has_run(self, then: str) -> bool:
        """Returns whether a correct run has ended; if not, shows that it is needed. then: what can be done after it."""
        earlier = self.session.earlier(self.buffer.kernel)
        if self.session.can_measure_on:
            return True
        if self.session.busy:
            self.say(f"The run has not ended yet. {then} after its end.")
        elif earlier is not None and earlier.passed:
            self.say(f"PASS since {figures.age_words(earlier.created)}. {self.key_words('run')} runs it again first")
        else:
            self.say("No PASS yet: run a kernel first")
        return False

    def action_cancel(self) -> None:
        """Closes a bar or list, or goes back to all panes or the editor; pressed twice: cancels the run, or leaves."""
        if close_bar(self) or self.front.leave():
            return
        if self.zoomed:
            self.zoom_focused()
        elif self.focused is not self.front:
            self.show_view(self.view if self.view in self.files else KERNEL)
        elif self.was_pressed("cancel"):
            self.forget_press("cancel")
            if self.session.judging:
                self.start(self.session.cancel(), "cancel")
            elif self.front.vim is None:  # who lives in vim presses it out of habit
                self.action_problems()
        else:
            self.note_press("cancel")
            self.draw(force=True)
            self.set_timer(AGAIN_WITHIN_S, lambda: self.draw(force=True))

    def action_setting(self) -> None:
        from screens.kernel.setting_dialog import SettingDialog

        ask(self, SettingDialog(self.session), self._setting_chosen)

    def _setting_chosen(self, choice: Choice) -> None:
        self.session.choice = choice
        self.draw(force=True)
        self.action_run()

    def action_profile(self) -> None:
        self.start(self._profile(), "profile", exclusive=True)

    async def _profile(self) -> None:
        from screens.profile import ProfileScreen

        with self.parent_app.keys_wait():
            request, sha256 = await self.session.profile_request()
        result = partial(self.session.result_of, sha256, request.setting)
        unsaved = self.buffer.dirty
        self.app.push_screen(ProfileScreen(self.parent_app, self.problem, request, sha256[:8], result, unsaved=unsaved))

    def action_ask_model(self) -> None:
        from arena.runs.origin import Origin

        origin = Origin(shown_name(self.session.path), self.buffer.kernel)
        self.parent_app.ask_model(self.problem, self.session.choice, origin)

    def action_duel(self) -> None:
        self.parent_app.plan_duel(self.problem, self.session.choice, self.session.path)

    def action_problems(self) -> None:
        self.dismiss()
