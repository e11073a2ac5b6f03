"""A page to read, over whatever is below it."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll

from screens.dialogs.dialog import Dialog
from screens.widgets.page import Page
from screens.widgets.pane_title import entitle


class Reader(Dialog[None]):
    """Markdown in a scrolling pane. Of several sections the first is there at once: each takes a while to be composed."""

    TO_READ = True
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,space", "dismiss", "back")]

    def __init__(self, title: str, *sections: str) -> None:
        super().__init__()
        self._title, self._sections = title, sections

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog large reader") as page:
            entitle(page, self._title)
            page.border_subtitle = "esc back"
            yield Page(self._sections[0])

    def on_mount(self) -> None:
        self.run_worker(self._mount_the_rest())

    async def _mount_the_rest(self) -> None:
        page = self.query_one(VerticalScroll)
        for section in self._sections[1:]:
            await page.mount(Page(section))
