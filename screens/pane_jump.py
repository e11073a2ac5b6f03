"""Shows a letter on every pane and view; pressing one moves the focus there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.content import Content
from textual.geometry import Offset
from textual.screen import ModalScreen

from screens.actions import key_of, key_words
from screens.app_protocol import Layer, arena_app
from screens.widgets.text_lines import FittedText, PlainStatic

NEXT = "next"
"""The result if the key that opened it is pressed again."""


@dataclass(frozen=True)
class Stop:
    """A place to go to."""

    letter: str
    name: str
    """The name of a view or a pane, or a pane's selector."""
    title: str
    at: Offset | None = None
    """Where its letter is shown; None if it is not on the screen now."""


def letter_rows(stops: Sequence[Stop], key: str, width: int) -> list[Content]:
    """The letters, each beside its title, then what `key` and esc do."""
    said = [Content.assemble((stop.letter, "bold $accent"), f" {stop.title}") for stop in stops if stop.title]
    rows = [Content()]
    for one in [*said, *(Content.styled(words, "$muted") for words in (f"{key} next", "esc stays"))]:
        if rows[-1] and rows[-1].cell_length + 2 + one.cell_length > width:
            rows.append(Content())
        rows[-1] = rows[-1] + "  " + one if rows[-1] else one
    return rows


class PaneJump(ModalScreen[str], Layer[str], inherit_bindings=False):
    """Covers a screen until a key is pressed. Dismisses with a name, with NEXT, or with "" for neither."""

    # Not DEFAULT_CSS, because the app's background for all screens would override it.
    CSS: ClassVar[str] = """
    PaneJump, PaneJump:ansi { background: transparent; }
    PaneJump .letter { position: absolute; width: 3; height: 1; background: $accent; color: $background; text-style: bold; }
    PaneJump #letters { dock: bottom; height: auto; padding: 0 1; background: $panel; }
    """
    AUTO_FOCUS: ClassVar[str | None] = None

    def __init__(self, stops: Sequence[Stop], key: str) -> None:
        """key: the key that opened it, as shown on the screen."""
        super().__init__()
        self._stops = stops
        self._key = key
        self._pressed = False
        """Whether a key was pressed. A second one that comes at once is ignored: it is meant for the next screen."""

    def compose(self) -> ComposeResult:
        self._for = self.app.size
        for stop in self._stops:
            if stop.at is not None:
                letter = PlainStatic(f" {stop.letter} ", classes="letter")
                letter.styles.offset = stop.at
                yield letter
        yield FittedText(lambda width: letter_rows(self._stops, self._key, width), id="letters")

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        if self._pressed:
            return
        self._pressed = True
        if key_words(event.key) == self._key:
            self.dismiss(NEXT)
            return
        self.dismiss(next((stop.name for stop in self._stops if stop.letter == event.key.lower()), ""))
        if key_words(event.key) == key_of("help", arena_app(self).services.settings.keymap):
            self.app.call_later(self.app.run_action, "app.help")

    def on_resize(self, event: events.Resize) -> None:
        """Closes at another size: the panes are elsewhere then."""
        if event.size != self._for:
            self.dismiss("")

    def on_click(self) -> None:
        self.dismiss("")
