"""The first start: what this machine has, and one key that runs a first kernel."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content

from screens.dialogs.dialog import Dialog
from screens.widgets.foreign import PlainStatic


class Welcome(Dialog[bool]):
    """True = open the first problem and run its starter kernel."""

    TO_READ = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "dismiss(True)", "run a first kernel"),
        Binding("escape", "dismiss(False)", "look around"),
    ]

    def __init__(self, machine: str, problems: int, first: str) -> None:
        super().__init__()
        self._machine, self._problems, self._first = machine, problems, first

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = "Welcome to pkb-arena"
            yield PlainStatic(
                Content("\n").join(
                    [
                        Content(
                            "Write a multi-GPU kernel and save it. Every save shows whether the kernel is correct, "
                            "and how much faster than the baseline."
                        ),
                        Content(""),
                        Content.assemble(("here      ", "$muted"), self._machine),
                        Content.assemble(("problems  ", "$muted"), str(self._problems)),
                        Content.assemble(("first     ", "$muted"), self._first),
                        Content(""),
                        Content.assemble(
                            ("enter ", "bold $accent"), "opens it with a correct kernel and runs it"
                        ),
                        Content.assemble(("esc   ", "bold $accent"), "goes to the list of problems"),
                        Content.assemble(("F1    ", "bold $accent"), "help; ctrl+p: menu of all commands"),
                    ]
                )
            )
