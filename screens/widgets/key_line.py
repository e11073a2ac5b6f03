"""The last line of a screen: its keys, as many as fit."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from rich.cells import cell_len
from textual import events
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Region
from textual.screen import Screen
from textual.widget import Widget

FRAME = 8
"""Columns of a border that are not its title."""


class TitledPane(Vertical):
    """A pane that repaints only its borders when its title changes, not its contents.

    The title of a text's pane contains the cursor's place, so every key would paint the text twice: Textual's setters
    of titles refresh the whole pane, not only the border's row.
    """

    _border_rows: tuple[int, ...] = ()
    """The border rows to repaint while a title is set; otherwise empty."""

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        """Refreshes the widget; while a title is set, only the border's rows."""
        if self._border_rows and not layout:
            x, y = self.content_offset
            regions = tuple(Region(-x, row - y, self.outer_size.width, 1) for row in self._border_rows)
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)


def entitle(pane: Widget, title: str | None = None, subtitle: str | None = None) -> None:
    """Sets the given titles if they changed. Textual repaints the whole pane even for the same title."""
    for side, words in (("border_title", title), ("border_subtitle", subtitle)):
        if words is not None and getattr(pane, side) != (content := Content(words)).markup:
            if isinstance(pane, TitledPane):
                pane._border_rows = (0, pane.outer_size.height - 1)
            setattr(pane, side, content)
            if isinstance(pane, TitledPane):
                pane._border_rows = ()


LEADING = (
    *("save", "open_row"),
    *("submit", "agree", "share", "rematch", "take_over", "replay_pause", "replay_on", "replay_share", "write_trace"),
    *("leave_sweep", "leave_profile", "leave_duel", "leave_replay"),
)
"""The main actions of a screen come first. The keys of the focused widget follow, then the screen's other keys."""
PLACES = ("jump", "problems", "zoom")
"""The actions that lead to every pane, and away from a kernel; they come right after the main actions, in this order."""
KEPT = ("help", "command_palette", "quit")
"""Shown even if no other key fits, because they lead to all others."""
GAP = 2
"""Columns between two keys."""


@dataclass(frozen=True)
class ShownKey:
    """A key of the line."""

    key: str
    words: str
    """The key as the line shows it."""
    title: str
    action: str
    enabled: bool
    tooltip: str

    @property
    def columns(self) -> int:
        """Its width, with the gap behind it."""
        return cell_len(f"{self.words} {self.title}") + GAP


class KeyLine(Widget):
    """Shows the keys in one line. If the line is too narrow, keys are left out from the end.

    It is one widget. Textual's Footer has one for each key and makes all of them anew when the focus moves. The styles
    of those widgets were more than a quarter of all styles that a screen with panes had to compute.
    """

    ALLOW_SELECT: ClassVar[bool] = False

    _keys: Sequence[ShownKey] = ()
    _under: ShownKey | None = None
    """The key below the mouse."""

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._bindings_changed)
        self._read()

    def on_unmount(self) -> None:
        self.screen.bindings_updated_signal.unsubscribe(self)

    def _bindings_changed(self, screen: Screen[Any]) -> None:
        if screen.app.app_focus:  # without the terminal's focus no keys are active: the shown ones stay
            self.call_after_refresh(self._read)

    def _read(self) -> None:
        """Reads the active keys and repaints only if they changed, because every change of focus leads here."""
        if not self.is_attached:
            return
        # the others keep their order
        first = {action: at for at, action in enumerate(("", *PLACES))} | dict.fromkeys(LEADING, 0)
        keys = sorted(self._active_keys(), key=lambda key: first.get(key.action, len(first)))
        if keys != self._keys:
            self._keys = keys
            self._point_at(None)
            self.refresh()

    def _active_keys(self) -> Iterator[ShownKey]:
        # `idle_actions` of a full-screen view are the actions that cannot work now; dialogs have none.
        seen = set(getattr(self.screen, "idle_actions", ()))
        for _, binding, enabled, tooltip in self.screen.active_bindings.values():
            if binding.show and binding.action not in seen:
                seen.add(binding.action)
                words = self.app.get_key_display(binding)
                yield ShownKey(binding.key, words, binding.description, binding.action, enabled, tooltip)

    def _placed(self) -> Iterator[tuple[int, ShownKey]]:
        """The keys that fit, each with the column where it starts."""
        missing = sum(key.columns for key in self._keys) - GAP - self.size.width
        gone = set()
        for key in reversed(self._keys):
            if missing > 0 and key.action not in KEPT:
                gone.add(key)
                missing -= key.columns
        column = 0
        for key in self._keys:
            if key not in gone:
                yield column, key
                column += key.columns

    def render(self) -> Content:
        parts: list[Content | str | tuple[str, str]] = []
        for _, key in self._placed():
            look = " underline" if key is self._under else "" if key.enabled else " dim"
            parts += [(key.words, f"$accent{look}"), (f" {key.title}", f"$muted{look}"), " " * GAP]
        return Content.assemble(*parts[:-1])

    # --- the mouse -------------------------------------------------------------------------------------------

    def _at(self, column: int) -> ShownKey | None:
        return next((key for start, key in self._placed() if start <= column < start + key.columns - GAP), None)

    def _point_at(self, key: ShownKey | None) -> None:
        if key is not self._under:
            self._under = key
            self.tooltip = (key.tooltip or None) if key is not None else None
            self.refresh()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        self._point_at(self._at(event.x))

    def on_leave(self) -> None:
        self._point_at(None)

    def on_mouse_down(self, event: events.MouseDown) -> None:
        if (key := self._at(event.x)) is not None:
            self.app.simulate_key(key.key) if key.enabled else self.app.bell()
