"""The base of dialogs with fields, which enter submits."""

from typing import ClassVar

from textual.actions import SkipAction
from textual.binding import Binding, BindingType
from textual.screen import ScreenResultType
from textual.widgets import Select

from screens.dialogs.dialog import Dialog


class DecidingDialog(Dialog[ScreenResultType]):
    """A dialog of fields, which enter decides wherever the focus is; a list is opened by space, and enter chooses in it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "back"),
        Binding("enter", "decide_or_choose", "go ahead; in an open list: choose", show=False, priority=True),
    ]

    def decide(self) -> None:
        """Takes what the fields say, or says what is wrong with it."""
        raise NotImplementedError

    def action_decide_or_choose(self) -> None:
        """In a list that is open, enter belongs to the list."""
        if any(select.expanded for select in self.query(Select)):
            raise SkipAction
        self.decide()
