"""The dialog of the first start: what this machine has, and one key that runs a first kernel."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content

from screens.dialogs.dialog import Dialog
from screens.widgets.text_lines import PlainStatic

_LABELS = ("here", "problems", "first")


class Welcome(Dialog[bool]):
    """Dismisses with True to open the first problem and run its starter kernel."""

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
            rows = [
                ("", "Write a multi-GPU kernel and save it. Every save shows whether it is correct, and its speedup."),
                ("", ""),
                ("here      ", self._machine), ("problems  ", str(self._problems)), ("first     ", self._first),
                ("", ""),
                ("enter ", "opens it with a correct kernel and runs it"),
                ("esc   ", "goes to the list of problems"),
                (f"{self.key_words('help'):<5} ", f"help; {self.key_words('command_palette')}: menu of all commands"),
            ]  # fmt: skip
            yield PlainStatic(
                Content("\n").join(
                    Content.assemble((name, "$muted" if name.strip() in _LABELS else "bold $accent"), words)
                    for name, words in rows
                )
            )
