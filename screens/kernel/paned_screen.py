"""The views and panes of the kernel screen: which are shown, which has the focus, how to move between them."""

from textual import on
from textual.widget import Widget

from screens.app_protocol import AppProtocol
from screens.base import BaseScreen
from screens.kernel.panes.result_pane import ResultPane
from screens.kernel.source.source_pane import KERNEL, VIEW_LETTERS, VIEW_NAMES, SourcePane
from screens.kernel.source.view_tabs import ViewTabs
from screens.pane_jump import Stop


class PanedScreen(BaseScreen):
    """The base of the kernel screen, which has a SourcePane, a ResultPane and the ViewTabs."""

    def __init__(self, parent_app: AppProtocol) -> None:
        super().__init__(parent_app)
        self.services = parent_app.services
        self.view = KERNEL
        self.zoomed = False
        """Whether one pane fills the screen."""

    @property
    def idle_actions(self) -> frozenset[str]:
        return frozenset()

    def draw(self, force: bool = False) -> None:
        """Updates every widget."""
        raise NotImplementedError

    @property
    def texts(self) -> dict[str, str]:
        """The other files of the kernel's folder, by their path in it; a binary file's size in place of its text."""
        return {}

    @property
    def left_views(self) -> tuple[str, ...]:
        """The views on the left: the kernel, the other files of its folder, and the others."""
        return (KERNEL, *self.texts, *VIEW_NAMES[1:])

    def views(self) -> tuple[str, ...]:
        return self.left_views if self.has_class("-wide") else (*self.left_views, "result", "log")

    @property
    def answer_shown(self) -> bool:
        """Whether the answer pane is on the screen. Reads classes, because styles are updated later."""
        if self.zoomed:
            return self.query_one(ResultPane).pane("answer").has_class("zoomed")
        return self.has_class("-wide") or self.view == "result"

    def show_view(self, view: str) -> None:
        """Brings one view to the front and gives it the focus."""
        self.view = view
        self.set_class(view == "result", "view-result")
        self.set_class(view == "log", "view-log")
        if view in self.left_views:
            self._focus(self.query_one(SourcePane).bring_up(view, self.texts))
        else:
            self._focus(self.query_one(ResultPane).pane("answer" if view == "result" else view).front)
        self.draw(force=True)

    def go_to(self, name: str) -> None:
        """Gives the focus to a view or to a pane of the result."""
        if name in self.left_views:
            self.show_view(name)
            return
        if not self.has_class("-wide"):
            self.show_view("log" if name == "log" else "result")
        self._focus(self.query_one(ResultPane).pane(name).front)

    def _focus(self, target: Widget) -> None:
        """Focuses a widget. If one pane fills the screen, first shows the widget's pane instead."""
        if self.zoomed:
            self.zoom(target)
        self.call_after_refresh(target.focus)  # until then a hidden widget cannot take the focus

    def zoom(self, target: Widget | None) -> None:
        """Fills the screen with the pane of `target`; None: shows all panes again."""
        result = self.query_one(ResultPane)
        pane = result.pane_of(target)
        self.zoomed = target is not None
        self.set_class(self.zoomed and pane is None, "zoom-left")
        self.set_class(self.zoomed and pane is not None, "zoom-right")
        for each in result.panes:
            each.set_class(each is pane, "zoomed")
        self.draw(force=True)

    @on(ViewTabs.Chosen)
    def _chosen(self, event: ViewTabs.Chosen) -> None:
        self.show_view(event.name)

    def action_next_view(self) -> None:
        views = self.views()
        self.show_view(views[(views.index(self.view) + 1) % len(views)] if self.view in views else KERNEL)

    def action_next_pane(self) -> None:
        """Moves the focus from the view on the left through the panes of the result, and then back."""
        result = self.query_one(ResultPane)
        names = [self.view if self.view in self.left_views else KERNEL, *(pane.NAME for pane in result.in_use)]
        here = result.pane_of(self.focused)
        at = names.index(here.NAME) if here is not None and here.NAME in names else 0
        self.go_to(names[(at + 1) % len(names)])

    def go_to_next(self) -> None:
        self.action_next_pane()

    def stops(self) -> list[Stop]:
        """Returns every view and every pane, with the position of its jump letter."""
        tabs = self.query_one(ViewTabs)
        stops = []
        for name, letter in VIEW_LETTERS.items():
            stops.append(Stop(letter, name, name, tabs.letter_at(name)))
        for pane in self.query_one(ResultPane).in_use:
            tab = tabs.letter_at("result" if pane.NAME == "answer" else pane.NAME)  # on a narrow screen
            at = pane.region.offset if pane.region.area else tab
            stops.append(Stop(pane.LETTER, pane.NAME, pane.TITLE.lower(), at))
        return stops

    def zoom_focused(self) -> None:
        self.zoom(None if self.zoomed else self.focused)
