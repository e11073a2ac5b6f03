"""The screen of a model that writes kernels: its text, kernels, verdicts and costs."""

from pathlib import Path
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import ContentSwitcher, OptionList
from textual.widgets.option_list import Option

from arena.players.attempts import KernelState
from arena.runs.origin import Origin
from arena.setting_choice import choice_of
from arena.words.untrusted_text import printable
from arena.workspace.kernel_folder import shown_text
from problems.specification import Problem
from sandbox.protocol.events import Setting
from screens import figures
from screens.actions import Scope, bindings
from screens.app_protocol import AppProtocol
from screens.base import BaseScreen
from screens.model import words
from screens.model.model_session import ModelPlan, ModelSession
from screens.pane_jump import Stop
from screens.widgets.highlight import has_fence
from screens.widgets.key_line import KeyLine, entitle
from screens.widgets.line_chart import ACCENT, NO_SPEEDUP, NO_VERDICT, ChartLine, LineChart, verdict_point
from screens.widgets.source import SOURCE_STYLES, Source, Writing
from screens.widgets.source_bars import close_bar, open_bar
from screens.widgets.text_lines import PlainStatic

REFRESH_S = 0.1
WORK = "model"
VIEWS = ("kernel", "answer", "prompt")
"""What the large pane shows of a kernel: its text, all that the model wrote, what it was given."""


class ModelScreen(BaseScreen):
    """Has one row for every kernel. While the model works, the last row shows its current step."""

    CSS_PATH: ClassVar[Any] = [SOURCE_STYLES, Path(__file__).with_name("screen.tcss")]
    SCOPE: ClassVar[Scope] = "model"
    PLACES: ClassVar[tuple[Stop, ...]] = (
        Stop("t", "#text-pane", "text"),
        Stop("k", "#kernels", "kernels"),
        Stop("v", "#verdict-pane", "verdict"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("model")]

    def __init__(self, parent_app: AppProtocol, problem: Problem, setting: Setting, plan: ModelPlan) -> None:
        super().__init__(parent_app)
        self.HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (100, "-wide"), (140, "-broad")]
        self.VERTICAL_BREAKPOINTS = [(0, "-low"), (36, "-high")]
        self.session = ModelSession(self.services, problem, setting, plan)
        self.view = VIEWS[0]
        self._rows: list[Content] = []
        self._follows = True
        """Whether the cursor follows the row of the current step."""
        self._led_to = 0
        """The row that the cursor was last moved to for that."""
        self._shown: tuple[str, int, int] | None = None
        """(view, number, length) of the text in the large pane."""

    def compose(self) -> ComposeResult:
        with Horizontal(classes="head stacks"):
            yield PlainStatic(id="model-title")
            yield PlainStatic(id="model-best")
        with Horizontal(id="model-panes", classes="panes"):
            with Vertical(id="text-pane", classes="pane"), ContentSwitcher(initial="model-writing", id="model-text"):
                yield Writing(id="model-writing")
                yield Source(id="model-source")
            with Vertical(id="model-side"):
                yield OptionList(id="kernels", classes="pane")
                with Vertical(id="gains-pane", classes="pane"):
                    yield LineChart(id="gains")
                with VerticalScroll(id="verdict-pane", classes="pane"):
                    yield PlainStatic(id="verdict")
        yield PlainStatic(id="model-phase")
        yield KeyLine()

    def on_mount(self) -> None:
        kernels = self.query_one("#kernels")
        entitle(kernels, "kernels", self.session.plan.words)
        entitle(self.query_one("#gains-pane"), "speedup over time")
        kernels.focus()
        self.set_interval(REFRESH_S, self.draw)
        self.run_worker(self._guard(self._work()), group=WORK, exit_on_error=False)
        self.draw()

    async def _work(self) -> None:
        try:
            await self.session.work()
        finally:
            if self.services.settings.bell:
                self.app.bell()

    # --- drawing -------------------------------------------------------------------------------------------

    def draw(self) -> None:
        """Draws what changed. Called ten times a second, so that several events are drawn at once."""
        if not self.is_attached:
            return
        session = self.session
        phase = self.query_one("#model-phase", PlainStatic)
        phase.set_class(bool(session.failed), "failed")
        phase.update_if_new(words.phase_line(session))
        if not session.changed:
            return
        session.changed = False
        self.show_keys()
        self.query_one("#model-title", PlainStatic).update_if_new(words.title(session))
        self.query_one("#model-best", PlainStatic).update_if_new(words.best(session))
        self._draw_gains()
        self._draw_rows()
        self._draw_text()

    def _draw_gains(self) -> None:
        """Draws the speedup of every judged kernel over time."""
        points = [
            point
            for each in self.session.state.kernels
            if (report := each.report) is not None
            for point in verdict_point(each.judged_at, report.passed, report.interval, report.outcome)
        ]
        until = max((point.x for point in points), default=1.0)
        lines = [ChartLine(ACCENT, tuple(points), holds=True)]
        empty = NO_SPEEDUP if self.session.over else NO_VERDICT
        self.query_one(LineChart).plot(lines, until=until, axis=figures.clock, empty=empty)

    def _draw_rows(self) -> None:
        """Draws only rows whose words changed, so that the cursor stays where it is."""
        session, rows = self.session, self.query_one("#kernels", OptionList)
        lines = [words.kernel_line(session, kernel) for kernel in session.state.kernels]
        if self._live_row:
            lines.append(words.live_line(session))
        for at, line in enumerate(lines):
            if at >= len(self._rows):
                rows.add_option(Option(line))
            elif not line.is_same(self._rows[at]):
                rows.replace_option_prompt_at_index(at, line)
        for at in range(len(self._rows) - 1, len(lines) - 1, -1):
            rows.remove_option_at_index(at)
        self._rows = lines
        if lines and (self._follows or rows.highlighted is None):
            rows.highlighted = self._led_to = self._followed(len(lines))

    @property
    def _live_row(self) -> bool:
        """Whether the current step has a row. While a kernel is judged it has none: the kernel's row shows it."""
        state = self.session.state
        judging = bool(state.kernels) and state.kernels[-1].report is None and not state.kernels[-1].reason
        return not self.session.over and not judging

    def _followed(self, count: int) -> int:
        """Returns the newest row; after the end of the work, the best kernel's."""
        found = self.session.state.best
        return self.session.state.kernels.index(found) if self.session.over and found is not None else count - 1

    @property
    def _chosen(self) -> KernelState | None:
        """The kernel under the cursor; None on the row of the current step."""
        at = self.query_one("#kernels", OptionList).highlighted
        kernels = self.session.state.kernels
        return kernels[at] if at is not None and at < len(kernels) else None

    def _draw_text(self) -> None:
        session, state, kernel = self.session, self.session.state, self._chosen
        pane, switcher = self.query_one("#text-pane"), self.query_one("#model-text", ContentSwitcher)
        verdict = self.query_one("#verdict", PlainStatic)
        told = kernel or (state.kernels[-1] if state.kernels else None)  # while the model writes, the kernel before
        page = words.verdict_page(told, session.over) if told is not None else Content(session.notice)
        verdict.update_if_new(page)
        entitle(self.query_one("#verdict-pane"), f"kernel {told.number}" if told else "verdict")
        number = kernel.number if kernel is not None else state.writing
        views = f"{self.key_words('next_text')} {' · '.join(VIEWS)}"
        entitle(pane, f"{self.view} {number}" if self.view != "prompt" else "prompt", views)
        if self.view != "prompt" and kernel is None and not session.over:
            switcher.current = "model-writing"
            thinks = not state.text and bool(state.thought)
            self.query_one(Writing).follow(state.thought if thinks else state.text)
            self._shown = None
            return
        switcher.current = "model-source"
        text, name = self._text_of(kernel)
        shown = (self.view, number, len(text))
        if shown != self._shown:
            self._shown = shown
            self.query_one("#model-source", Source).show(text, name)

    def _text_of(self, kernel: KernelState | None) -> tuple[str, str]:
        """Returns (text, file name of that kind of text)."""
        state = self.session.state
        if self.view == "prompt":
            asked = words.conversation(state.system, state.asked) if state.asked else "No prompt yet."
            return printable(asked), "prompt.md"
        if kernel is None:
            return "", "answer.md"
        has_code = bool(kernel.kernel.source)
        if self.view == "kernel" and has_code:
            return shown_text(kernel.kernel), "kernel.py"
        return printable(kernel.text), "kernel.py" if has_code and not has_fence(kernel.text) else "answer.md"

    @on(OptionList.OptionHighlighted, "#kernels")
    def _moved(self, event: OptionList.OptionHighlighted) -> None:
        """Starts or stops following after a move of the user. Messages of the screen's own moves may come late."""
        if event.option_index != event.option_list.highlighted:
            return  # the cursor has moved on since
        if not (self._follows and event.option_index == self._led_to):
            self._follows = event.option_index == self._followed(len(self._rows))
        self._draw_text()

    # --- keys ----------------------------------------------------------------------------------------------

    @property
    def idle_actions(self) -> frozenset[str]:
        idle = {"stop_model" if self.session.over else "ask_again"}
        return frozenset(idle if self.session.state.best is not None else idle | {"take_over", "improve"})

    def action_next_text(self) -> None:
        self.view = VIEWS[(VIEWS.index(self.view) + 1) % len(VIEWS)]
        self._draw_text()

    async def action_find_text(self) -> None:
        """Opens the find bar for the text under the cursor, once it is complete."""
        if self.query_one("#model-text", ContentSwitcher).current != "model-source":
            self.say("Find works in finished kernels only")
            return
        await open_bar(self.query_one("#text-pane"), self.query_one("#model-source", Source))

    def action_stop_model(self) -> None:
        if self.session.over:
            self.say("The model has stopped already")
        else:
            self.workers.cancel_group(self, WORK)

    @on(OptionList.OptionSelected, "#kernels")
    def action_take_over(self) -> None:
        """Puts the chosen kernel into the editor."""
        kernel, over = self._with_code(), self.session.over
        if kernel is not None and (over or self.is_sure("take_over", "stops the model and takes the kernel over")):
            self.parent_app.take_over(self.session.problem, kernel.kernel)

    def _with_code(self) -> KernelState | None:
        """Returns the chosen kernel, or the best one; None if it has no code, and says so."""
        kernel = self._chosen or self.session.state.best
        if kernel is not None and kernel.kernel.source:
            return kernel
        self.say("No kernel yet" if kernel is None else "This answer has no kernel")
        return None

    def action_improve(self) -> None:
        """Asks a model to improve the chosen kernel."""
        if (kernel := self._with_code()) is not None:
            origin = Origin(f"kernel-{kernel.number}.py", kernel.kernel, player=str(self.session.plan.player.name))
            self.action_ask_again(origin)

    def action_ask_again(self, origin: Origin | None = None) -> None:
        """Asks a model again in the same setting, in place of this screen. origin: the kernel to improve."""
        session = self.session
        if session.over:
            choice = choice_of(session.setting, session.problem)
            self.parent_app.ask_model(session.problem, choice, origin, improve=origin is not None)
        else:
            self.say("The model is still writing. Stop it first.")

    def action_leave_model(self) -> None:
        """Closes a find bar with the focus, else leaves. While the model works, leaving needs a second escape."""
        if close_bar(self):
            return
        if self.session.over or self.is_sure("leave_model", "stops the model and leaves; its kernels are kept"):
            self.dismiss()
