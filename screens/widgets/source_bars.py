"""One-row bars below a source text: find and replace, and go to a line. A screen opens them and closes them with escape."""

from typing import ClassVar

from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input
from textual.widgets.text_area import Selection

from screens.widgets import text_lines
from screens.widgets.source import Source
from screens.widgets.text_lines import PlainStatic


class KeyHint(PlainStatic):
    """The keys of a bar, in the longest wording that fits beside the fields."""

    def __init__(self, *wordings: str) -> None:
        """`wordings`: the longest first."""
        super().__init__(classes="keys")
        self._wordings = wordings

    def say(self, *wordings: str) -> None:
        """Sets other wordings, the longest first."""
        self._wordings = wordings
        self.refresh()

    def render(self) -> str:
        room = self.content_size.width
        return next((words for words in self._wordings if cell_len(words) <= room), "")


class SourceBar(Horizontal):
    """Base of the bars. A bar is hidden until `open`; `close` gives the focus back to the text."""

    DEFAULT_CSS = """
    SourceBar { height: 1; display: none; background: $surface; padding: 0 1; }
    SourceBar.open { display: block; }
    SourceBar PlainStatic { width: auto; color: $muted; }
    SourceBar Input { width: 3fr; max-width: 40; margin: 0 1; }
    SourceBar .short { width: 14; }
    SourceBar .keys { width: 1fr; min-width: 0; height: 1; margin-left: 1; }
    """

    source: text_lines.Searched | None = None
    """The text that the bar is open for; None while it is closed."""

    def open(self, source: text_lines.Searched) -> None:
        """Shows the bar for a text and focuses its first field."""
        self.source = source
        self.add_class("open")
        first = self.query(Input).first()
        first.focus()
        first.select_all()

    def close(self) -> None:
        """Hides the bar."""
        source, self.source = self.source, None
        self.remove_class("open")
        if source is not None:
            source.focus()


class FindBar(SourceBar):
    """Finds and replaces. While the term is typed, the first match from the cursor on is selected."""

    BINDING_GROUP_TITLE = "Find and replace"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "next", "next match, or replace it", priority=True, show=False),
        Binding("down", "move(False)", "next match"),
        Binding("up", "move(True)", "previous match"),
        Binding("ctrl+a", "replace_all", "replace all", priority=True),
    ]

    def compose(self) -> ComposeResult:
        yield PlainStatic("find")
        yield Input(id="find-term", compact=True)
        yield PlainStatic("", id="find-count")
        yield PlainStatic(" replace", classes="to-replace")
        yield Input(id="find-replacement", classes="to-replace", compact=True)
        yield KeyHint()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disables replacing in a text that is only read, as the log."""
        return action != "replace_all" or (self.source is not None and not self.source.read_only)

    def open(self, source: text_lines.Searched) -> None:
        """Opens the bar with the selected text as the term, if it lies within one line."""
        self._origin = min(source.selection)
        for part in self.query(".to-replace"):
            part.display = not source.read_only
        replacing = () if source.read_only else ("enter next · tab replace · ^a all · esc",)
        self.query_one(KeyHint).say(*replacing, "enter next · esc", "esc")
        term = self.query_one("#find-term", Input)
        if source.selected_text and "\n" not in source.selected_text:
            term.value = source.selected_text
        super().open(source)
        self._find()

    def close(self) -> None:
        if self.source is not None:
            self.source.places("")
        super().close()

    @property
    def _places(self) -> list[tuple[text_lines.Place, text_lines.Place]]:
        assert self.source is not None
        return self.source.places(self.query_one("#find-term", Input).value)

    @on(Input.Changed, "#find-term")
    def _find(self) -> None:
        if self.source is not None:
            self._select(self._origin)

    def _select(self, cursor: text_lines.Place, *, backward: bool = False) -> None:
        """Selects the next match from `cursor` on, or shows that there is none."""
        assert self.source is not None
        places = self._places
        if not places:
            term = self.query_one("#find-term", Input).value
            self._say("no match" if term else "", "$error")
            return
        number = text_lines.next_place(places, cursor, backward)
        start, end = places[number]
        self.source.move_cursor(start, center=True)
        self.source.selection = Selection(start, end)
        self._say(f"{number + 1} of {len(places)}")

    def _say(self, words: str, colour: str = "$muted") -> None:
        self.query_one("#find-count", PlainStatic).update(Content.styled(words, colour))

    def action_move(self, backward: bool) -> None:
        """Selects the next or the previous match."""
        if self.source is not None:
            selection = self.source.selection
            self._origin = min(selection) if backward else max(selection)
            self._select(self._origin, backward=backward)

    def action_next(self) -> None:
        """Selects the next match. In the field of the replacement, it replaces the selected match first."""
        replacement = self.query_one("#find-replacement", Input)
        if replacement.has_focus and self.source is not None:
            selection = self.source.selection
            source = self.source
            if isinstance(source, Source) and (min(selection), max(selection)) in self._places:
                source.replace(replacement.value, min(selection), max(selection))
                row, column = min(selection)
                self.source.selection = Selection.cursor((row, column + len(replacement.value)))
        self.action_move(False)

    def action_replace_all(self) -> None:
        """Replaces every match, in one step of the undo history."""
        source, places = self.source, self._places
        if not isinstance(source, Source) or not places:
            return
        pattern = text_lines.pattern_of(self.query_one("#find-term", Input).value)
        assert pattern is not None
        replacement = self.query_one("#find-replacement", Input).value
        cursor = source.cursor_location
        text = "\n".join(pattern.sub(lambda _: replacement, line) for line in source.document.lines)
        source.replace(text, source.document.start, source.document.end)
        source.move_cursor(source.clamp_visitable(cursor), center=True)
        self._say(f"{len(places)} replaced")


async def open_bar(pane: Widget, source: text_lines.Searched, kind: type[SourceBar] = FindBar) -> None:
    """Opens a bar at the lower end of a pane, in place of another one. It is created on first use, not with the screen."""
    for other in pane.query(SourceBar):
        if not isinstance(other, kind):
            other.close()
    if not pane.query(kind):
        await pane.mount(kind())
    pane.query_one(kind).open(source)


def close_bar(screen: Widget) -> bool:
    """Closes the bar that has the focus; returns False if none has it."""
    bar = next((bar for bar in screen.query(SourceBar) if bar.has_pseudo_class("focus-within")), None)
    if bar is not None:
        bar.close()
    return bar is not None


class LineBar(SourceBar):
    """Goes to the line while its number is typed; escape goes back."""

    BINDING_GROUP_TITLE = "Go to a line"

    def compose(self) -> ComposeResult:
        yield PlainStatic("line")
        yield Input(id="line-number", type="integer", classes="short", compact=True)
        yield KeyHint()

    def open(self, source: text_lines.Searched) -> None:
        """Opens the bar empty. `source` must be a `Source`, because the log has no line numbers."""
        assert isinstance(source, Source)
        self._back = source.cursor_location
        self.query_one(Input).value = ""
        count = f"of {source.document.line_count}"
        self.query_one(KeyHint).say(
            f"{count} · enter stays there · esc goes back", f"{count} · enter stays · esc back", count
        )
        super().open(source)

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        if isinstance(self.source, Source) and event.value.strip("-+").isdecimal():
            row = max(0, min(int(event.value) - 1, self.source.document.line_count - 1))
            self.source.move_cursor((row, 0), center=True)

    @on(Input.Submitted)
    def _stay(self) -> None:
        super().close()

    def close(self) -> None:
        """Closes the bar and moves the cursor back to where it was."""
        if self.source is not None:
            self.source.move_cursor(self._back, center=True)
        super().close()
