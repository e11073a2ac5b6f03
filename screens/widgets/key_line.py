"""The last line of a screen: its keys, as many as fit."""

from collections.abc import Iterable
from typing import Any

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.widgets import Footer

KEPT = ("help", "quit")
"""Who sees these two finds everything else."""
GAP = 2
"""Columns between two keys."""


class KeyLine(Footer):
    """Where a line is too narrow, keys give way from the end."""

    def __init__(self) -> None:
        super().__init__(compact=True, show_command_palette=False)

    def compose(self) -> ComposeResult:
        keys = list(super().compose())
        self._fit(keys)
        yield from keys

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
