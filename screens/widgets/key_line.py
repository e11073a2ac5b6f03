"""The last line of a screen: its keys, as many as fit."""

from collections.abc import Iterable
from typing import Any

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.widgets import Footer

LEADING = (
    "save",
    "run",
    "open_row",
    "hand_in",
    "rematch",
    "take_over",
    "replay_pause",
    "write_trace",
    "leave_campaign",
    "leave_profile",
)
"""What a screen is for stays in front; behind it come the keys of what has the focus, then the screen's others."""
PLACES = ("jump", "zoom")
"""The ways to every pane; they come right after."""
KEPT = ("help", "quit")
"""Shown even where no other key fits: the two lead to all others."""
GAP = 2
"""Columns between two keys."""


class KeyLine(Footer):
    """Where a line is too narrow, keys give way from the end."""

    def __init__(self) -> None:
        super().__init__(compact=True, show_command_palette=False)
        self._composed: tuple[Any, ...] = ()

    def compose(self) -> ComposeResult:
        idle = self._idle
        keys: list[Any] = [key for key in super().compose() if getattr(key, "action", "") not in idle]
        keys.sort(
            key=lambda key: 2 - 2 * (key.action in LEADING) - (key.action in PLACES)
        )  # the others keep their order
        self._fit(keys)
        yield from keys

    async def recompose(self) -> None:
        """Makes the keys anew, unless they are the same: bindings are looked at whenever something gets the focus."""
        if not self.is_attached:
            return
        keys = tuple(
            (binding, self.app.get_key_display(binding), enabled, tooltip)
            for _, binding, enabled, tooltip in self.screen.active_bindings.values()
            if binding.show and binding.action not in self._idle
        )
        if keys != self._composed:
            self._composed = keys
            await super().recompose()

    @property
    def _idle(self) -> frozenset[str]:
        """Actions that the screen says cannot work now (`idle_actions` of a full-screen view; dialogs have none)."""
        return getattr(self.screen, "idle_actions", frozenset())

    def on_resize(self) -> None:
        """Another width: more keys, or fewer."""
        self._fit(self.children)

    def _fit(self, children: Iterable[Any]) -> None:
        keys = list(children)
        missing = sum(map(_columns, keys)) - GAP - self.size.width
        for key in reversed(keys):
            key.display = missing <= 0 or key.action in KEPT
            if not key.display:
                missing -= _columns(key)


def _columns(key: Any) -> int:
    return cell_len(f"{key.key_display} {key.description}") + GAP
