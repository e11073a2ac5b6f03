"""The dialog for the setting of the next runs: preset, sizes, world, dtype."""

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Select

from arena.errors import ArenaError
from arena.setting_choice import Choice, choose_setting
from screens import figures
from screens.dialogs.dialog import DecidingDialog
from screens.kernel.kernel_session import KernelSession
from screens.widgets.text_lines import PlainStatic


class SettingDialog(DecidingDialog[Choice | None]):
    """Shows the cost of the chosen setting at once; enter runs in that setting."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("f5,ctrl+s", "take", "run in this setting", priority=True)]

    def __init__(self, session: KernelSession) -> None:
        super().__init__()
        self.session = session
        self.problem = session.problem
        self._filled = ""

    def compose(self) -> ComposeResult:
        problem = self.problem
        try:
            now = self.session.setting()
        except ArenaError:
            now = choose_setting(problem, Choice(device="cpu"), self.session.services.settings)
        with VerticalScroll(classes="dialog", can_focus=False) as dialog:
            dialog.border_title = f"Setting · {problem.slug}"
            dialog.border_subtitle = "space opens a list · enter runs · esc back"
            for name, id, options, value in (
                ("preset", "preset", problem.presets, now.preset),
                ("ranks", "world", problem.worlds, now.world),
                ("dtype", "dtype", problem.dtypes, now.dtype),
            ):
                choices = [(str(option), option) for option in options]
                yield from self._row(name, Select(choices, value=value, allow_blank=False, id=id, compact=True))
            for name, value in now.sizes.items():
                yield from self._row(name, Input(str(value), type="integer", id=f"size-{name}", compact=True))
            yield PlainStatic("", id="cost")
        self._filled = now.preset

    def _row(self, name: str, control: Widget) -> ComposeResult:
        with Horizontal(classes="row"):
            yield PlainStatic(name, classes="label")
            yield control

    def on_mount(self) -> None:
        self._show_cost()

    def _choice(self) -> Choice:
        preset = str(self.query_one("#preset", Select).value)
        if preset != self._filled:  # not in a handler: a key may arrive before the message of the change
            self._filled = preset
            for name, value in self.problem.presets[preset].items():
                self.query_one(f"#size-{name}", Input).value = str(value)
        sizes: dict[str, int] = {}
        for name, value in self.problem.presets[preset].items():
            text = self.query_one(f"#size-{name}", Input).value
            if text and int(text) != value:
                sizes[name] = int(text)
        world = self.query_one("#world", Select).value
        return Choice(preset=preset, world=int(world) if isinstance(world, int) else None,
                      dtype=str(self.query_one("#dtype", Select).value), sizes=sizes)  # fmt: skip

    @on(Select.Changed)
    @on(Input.Changed)
    def _show_cost(self) -> None:
        report = self.query_one("#cost", PlainStatic)
        try:
            setting = choose_setting(self.problem, self._choice(), self.session.services.settings)
        except (ArenaError, ValueError) as error:
            text = error.one_line if isinstance(error, ArenaError) else "sizes are whole numbers, 1 or more"
            report.update(Content.styled(f"✗ {text}", "$error"))
            return
        cost = self.problem.cost(setting.sizes, setting.world, setting.dtype)
        words = (
            f"each rank: {figures.amount(cost.flops, 'FLOP')}"
            f" · touches {figures.amount(cost.local_bytes, 'B')}"
            f" · sends {figures.amount(cost.sent_bytes, 'B')} · on {setting.device}"
        )
        report.update(Content.styled(words, "$muted"))

    def decide(self) -> None:
        self.action_take()

    def action_take(self) -> None:
        try:
            choice = self._choice()
            choose_setting(self.problem, choice, self.session.services.settings)
        except (ArenaError, ValueError):
            self.app.bell()  # the line below the fields says what is wrong
            return
        self.dismiss(choice)
