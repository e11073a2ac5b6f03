"""The dialog for the setting of the next runs: preset, sizes, world, dtype."""

from textual import on
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Input, Select

from arena.errors import ArenaError
from arena.setting_choice import Choice, choose_setting
from screens import figures
from screens.dialogs import DecidingDialog, field, one_of
from screens.kernel.kernel_session import KernelSession
from screens.widgets.text_lines import PlainStatic


class SettingDialog(DecidingDialog[Choice | None]):
    """Shows the cost of the chosen setting at once; enter runs in that setting."""

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
        keys = "enter runs · space opens a list · esc back"
        with self.frame(f"Setting · {problem.slug}", keys, VerticalScroll) as frame:
            frame.can_focus = False
            yield field("preset", one_of("preset", list(problem.presets), now.preset))
            yield field("ranks", one_of("world", problem.worlds, now.world))
            yield field("dtype", one_of("dtype", problem.dtypes, now.dtype))
            for name, value in now.sizes.items():
                yield field(name, Input(str(value), type="integer", id=f"size-{name}", compact=True))
            yield PlainStatic("", id="report")
        self._filled = now.preset

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
        try:
            setting = choose_setting(self.problem, self._choice(), self.session.services.settings)
        except (ArenaError, ValueError) as error:
            self.refuse(error.one_line if isinstance(error, ArenaError) else "sizes are whole numbers, 1 or more")
            return
        cost = self.problem.cost(setting.sizes, setting.world, setting.dtype)
        self.report(
            f"each rank: {figures.amount(cost.flops, 'FLOP')}"
            f" · touches {figures.amount(cost.local_bytes, 'B')}"
            f" · sends {figures.amount(cost.sent_bytes, 'B')} · on {setting.device}"
        )

    def action_decide(self) -> None:
        try:
            choice = self._choice()
            choose_setting(self.problem, choice, self.session.services.settings)
        except (ArenaError, ValueError):
            self.app.bell()  # the line below the fields says what is wrong
            return
        self.dismiss(choice)
