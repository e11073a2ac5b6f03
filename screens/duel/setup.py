"""The dialog before a duel: its players and minutes."""

from pathlib import Path
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Button, Input, Select

from problems.specification import Problem
from screens.app_protocol import DuelPlan
from screens.dialogs.dialog import Dialog
from screens.duel.live import YOU, opponents
from screens.widgets.foreign import PlainStatic

MINUTES = "10"
_SENTENCES = (
    "Both play at the same time. Every save is judged; in the end the best kernels of both sides run against "
    "each other on fresh inputs. A guest plays from a file of their own, beside yours in the workspace."
)


class DuelSetup(Dialog[DuelPlan | None]):
    """Dismisses with the plan."""

    CSS_PATH: ClassVar[Any] = [*Dialog.CSS_PATH, Path(__file__).with_name("setup.tcss")]
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "back")]

    def __init__(self, problem: Problem, models: list[str], device: str) -> None:
        super().__init__()
        self.problem = problem
        self.players = opponents(problem, models, device)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = f"Duel · {self.problem.id} {self.problem.slug}"
            dialog.border_subtitle = "enter starts · esc back"
            for name, label, players in (
                ("left", "left", [YOU, *self.players]),
                ("right", "right", [*self.players]),
            ):
                with Horizontal(classes="row"):
                    yield PlainStatic(label, classes="label")
                    yield Select(
                        ((player, player) for player in players),
                        value=players[0],
                        allow_blank=False,
                        id=f"player-{name}",
                        compact=True,
                    )
            with Horizontal(classes="row"):
                yield PlainStatic("minutes", classes="label")
                yield Input(MINUTES, id="minutes", compact=True)
            yield PlainStatic("", id="duel-trouble")
            yield PlainStatic(_SENTENCES, classes="note")
            with Horizontal(classes="buttons"):
                yield Button("start", variant="primary", id="start", compact=True)

    def on_mount(self) -> None:
        self.query_one("#start").focus()

    @on(Button.Pressed)
    @on(Input.Submitted)
    def _start(self) -> None:
        left = str(self.query_one("#player-left", Select).value)
        right = str(self.query_one("#player-right", Select).value)
        trouble = self.query_one("#duel-trouble", PlainStatic)
        text = self.query_one("#minutes", Input).value.strip()
        if left == right:
            trouble.update("✗ a player cannot play against itself")
            return
        if YOU not in (left, right) and not text:
            self.dismiss(DuelPlan(left, right, None))
            return
        try:
            minutes = float(text)
        except ValueError:
            minutes = 0.0
        if not 0.05 <= minutes <= 24 * 60:
            trouble.update("✗ minutes: a number from 0.05 to 1440" + (", or nothing" if left != YOU else ""))
            return
        self.dismiss(DuelPlan(left, right, minutes))
