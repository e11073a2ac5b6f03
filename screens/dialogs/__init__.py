"""Bases of dialogs: modal screens that `escape` closes."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from string import ascii_lowercase
from typing import Any, ClassVar, TypeVar

from rich.cells import cell_len
from textual import on
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.events import Key
from textual.geometry import Offset
from textual.screen import ModalScreen, ScreenResultType
from textual.widget import Widget
from textual.widgets import Input, Select
from textual.widgets._select import SelectOverlay

from arena.errors import ArenaError
from screens.actions import bindings, key_of
from screens.app_protocol import Layer, arena_app
from screens.pane_jump import NEXT, PaneJump, Stop
from screens.widgets.key_line import FRAME, entitle
from screens.widgets.tables import FilterInput
from screens.widgets.text_lines import FittedText, PlainStatic, found_in, markdown_rows

T = TypeVar("T")

_searches = SelectOverlay.check_consume_key
# A space chooses, see `action_choose`; other characters search in the open list.
SelectOverlay.check_consume_key = lambda self, key, character=None: key != "space" and _searches(self, key, character)  # type: ignore[method-assign]


def field(name: str, control: Widget, classes: str = "") -> Horizontal:
    """Returns the row of a field, with its name in front."""
    label = PlainStatic(name, classes="label", id=f"{control.id}-label" if control.id else None)
    return Horizontal(label, control, classes=f"row {classes}")


def one_of(id: str, options: Mapping[str, T] | Iterable[T], value: T) -> Select[T]:
    """Returns a list to choose one from. options: values, or values by the words for them."""
    named = options if isinstance(options, Mapping) else {str(option): option for option in options}
    return Select(named.items(), value=value, allow_blank=False, id=id, compact=True)


def number(text: str, least: float, most: float) -> float | None:
    """Returns the number that was typed; None if it is none, or not within the limits."""
    try:
        found = float(text)
    except ValueError:
        return None
    return found if least <= found <= most else None


def on_the_app(binding: Binding) -> Binding:
    """Turns a binding of the app into one for a modal screen."""
    return Binding(**{**vars(binding), "action": f"app.{binding.action}", "show": False})


class Dialog(ModalScreen[ScreenResultType], Layer[ScreenResultType]):
    """Base of all dialogs. Subclasses with rules of their own add their stylesheet to this CSS_PATH.

    Textual ignores bindings behind a modal screen, so the keys that work everywhere are bound here, too.
    """

    CSS_PATH: ClassVar[Any] = [Path(__file__).with_name("dialog.tcss")]
    TO_READ: ClassVar[bool] = False
    """Whether it only shows text. Then the menu offers commands of the screen below, which close this dialog first."""
    SEARCHES: ClassVar[bool] = False
    """Whether letters begin a search."""
    BINDINGS: ClassVar[list[BindingType]] = [
        *map(on_the_app, bindings("everywhere")),
        Binding("escape", "back", "back"),
        Binding("space", "choose", show=False, priority=True),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.VERTICAL_BREAKPOINTS = [(0, "-low"), (24, "-high")]
        self._keys = [""]
        """What the keys do, on the frame's lower border."""

    def key_words(self, action: str) -> str:
        """Returns the key of an action, as shown. A dialog's binding has that key if its id is the action's name."""
        return key_of(action, arena_app(self).services.settings.keymap)

    def frame(
        self, title: str, keys: str, kind: type[Widget] = Vertical, classes: str = "", id: str | None = None
    ) -> Widget:
        """Returns the frame around a dialog's contents. keys: what they do, on its lower border."""
        frame = kind(classes=f"dialog {classes}", id=id)
        entitle(frame, title, keys)
        self._keys = keys.split(" · ")
        return frame

    def name_keys(self, keys: str) -> None:
        """Replaces the keys on the lower border."""
        self._keys = keys.split(" · ")
        self._fit_keys()

    def _fit_keys(self) -> None:
        """Shows as many keys as fit, the last one always. If some are left out, the key of the help is there, too."""
        for frame in self.query(".dialog"):
            *keys, last = self._keys
            fewer = [[*keys[:count], f"{self.key_words('help')} keys", last] for count in range(len(keys) - 1, -1, -1)]
            wordings = map(" · ".join, [self._keys, *fewer])
            words = next((each for each in wordings if cell_len(each) <= frame.outer_size.width - FRAME), last)
            entitle(frame, subtitle=words)

    def report(self, words: str, colour: str = "$muted") -> None:
        """Shows words in the line `#report`."""
        self.query_one("#report", PlainStatic).update(Content.styled(words, colour))

    def refuse(self, why: str) -> None:
        """Shows in the line `#report` why the dialog does not do what was asked."""
        self.report(f"✗ {why}", "$error")

    def change(self, change: Callable[[], object], then: Callable[[], Awaitable[None] | None]) -> None:
        """Makes a change in a thread, or shows why it cannot be made; then calls `then`."""

        async def made() -> None:
            try:
                await asyncio.to_thread(change)
            except ArenaError as error:
                self.app.notify(error.one_line, severity="error", timeout=10, markup=False)
            if (following := then()) is not None:
                await following

        self.run_worker(made(), exit_on_error=False)

    def action_filter(self) -> None:
        self.query_one(FilterInput).open()

    def on_key(self, event: Key) -> None:
        """Begins a search with a letter that is no key of the dialog, and that the focused widget does not take."""
        if self.SEARCHES and event.is_printable and event.key not in self.active_bindings:
            self.action_filter()
            self.query_one(FilterInput).insert_text_at_cursor(event.character or "")

    def action_choose(self) -> None:
        """Chooses in the open list; else leaves the key to the field."""
        overlays = [each.query_one(SelectOverlay) for each in self.query(Select) if each.expanded]
        if not overlays:
            raise SkipAction
        overlays[0].action_select()

    def action_back(self) -> None:
        """Closes the filter if it is open, else the dialog."""
        if not any(each.close() for each in self.query(FilterInput)):
            self.dismiss(None)

    def jump(self) -> None:
        """Shows a letter at every field and goes to the one that is pressed."""
        drawn = [field for field in self.focus_chain if field.is_on_screen]  # the others have no place yet
        fields = [field for field in drawn if self.find_widget(field).visible_region.area]
        letters = dict(zip(ascii_lowercase, fields, strict=False))
        beside = Offset(3, 0)  # left of the field, so that its value stays visible
        stops = [Stop(letter, letter, "", field.region.offset - beside) for letter, field in letters.items()]

        def chosen(name: str | None) -> None:
            if name == NEXT:
                self.focus_next()
            elif name in letters:
                letters[name].focus()

        self.app.push_screen(PaneJump(stops, self.key_words("jump")), chosen)

    def on_resize(self) -> None:
        """Names the keys that fit, and keeps the focused widget visible."""
        self.call_after_refresh(self._fit_keys)
        if (focused := self.focused) is not None:
            self.call_after_refresh(focused.scroll_visible, animate=False)


class Reader(Dialog[None]):
    """Markdown in a scrolling pane, to search."""

    TO_READ = SEARCHES = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "search"),
        Binding("escape,q,space", "back", "back"),
    ]

    def __init__(self, title: str, *sections: str) -> None:
        super().__init__()
        self._title, self._sections = title, sections

    def compose(self) -> ComposeResult:
        with self.frame(self._title, "letters search · esc back", VerticalScroll, "large reader"):
            yield FilterInput("words", id="search", of=".dialog")
            yield FittedText(self._rows, id="sections")

    def _rows(self, width: int) -> list[Content]:
        words = self.query_one(FilterInput).words
        found = (found_in(section, words) if words else section for section in self._sections)
        return [row for section in found for row in markdown_rows(section, width)]

    @on(Input.Changed)
    def _searched(self) -> None:
        self.query_one("#sections").refresh(layout=True)


class DecidingDialog(Dialog[ScreenResultType]):
    """A dialog of fields. Enter confirms it from any field. Space opens a list, in which enter then chooses."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f5,ctrl+s", "decide", "go ahead", show=False, priority=True),
        Binding("enter", "decide_or_choose", "go ahead; in an open list: choose", show=False, priority=True),
        Binding("down", "go('next')", "next field", show=False, priority=True),
        Binding("up", "go('previous')", "field before", show=False, priority=True),
    ]

    def action_decide(self) -> None:
        """Takes the values of the fields, or shows what is wrong with them."""
        raise NotImplementedError

    def action_decide_or_choose(self) -> None:
        """Confirms the dialog; if a list is open, leaves enter to the list."""
        self._leave_to_list()
        self.action_decide()

    def action_go(self, to: str) -> None:
        """Goes to the "next" or the "previous" field; if a list is open, leaves the arrow to the list."""
        self._leave_to_list()
        self.focus_next() if to == "next" else self.focus_previous()

    def _leave_to_list(self) -> None:
        if any(select.expanded for select in self.query(Select)):
            raise SkipAction
