"""A page to read, over whatever is below it."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Markdown

from screens.dialogs.dialog import Dialog
from screens.widgets.pane_title import entitle


class Reader(Dialog[None]):
    """Markdown in a scrolling pane."""

    TO_READ = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,space", "dismiss", "back"),
    ]

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._title, self._text = title, text

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog large reader") as page:
            entitle(page, self._title)
            page.border_subtitle = "esc back"
            yield Markdown(self._text, open_links=False)
