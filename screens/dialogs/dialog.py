"""The base of every dialog: a modal screen that `escape` closes."""

from pathlib import Path
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.screen import ModalScreen, ScreenResultType

from screens.actions import bindings


def on_the_app(binding: Binding) -> Binding:
    """A binding of the app for a modal screen."""
    return Binding(**{**vars(binding), "action": f"app.{binding.action}", "show": False})


class Dialog(ModalScreen[ScreenResultType]):
    """Subclasses with rules of their own add their stylesheet to this CSS_PATH.

    Textual ignores bindings behind a modal screen, so the keys that work everywhere are bound here, too.
    """

    CSS_PATH: ClassVar[Any] = [Path(__file__).with_name("dialog.tcss")]
    TO_READ: ClassVar[bool] = False
    """It is only read: the menu offers the commands of the screen below, and closes this dialog first."""
    BINDINGS: ClassVar[list[BindingType]] = [*map(on_the_app, bindings("everywhere"))]

    def on_resize(self) -> None:
        """What has the keyboard stays in sight."""
        if (focused := self.focused) is not None:
            self.call_after_refresh(focused.scroll_visible, animate=False)
