"""Finding a text in a source, as people type it: lower case letters match both cases."""

import re
from collections.abc import Sequence
from typing import Any, Protocol

from textual.widget import Widget

Place = tuple[int, int]
"""Line and column, from 0."""


class Searched(Protocol):
    """A text that a bar finds in: a source, or the log."""

    selection: Any
    """A `Selection`."""

    @property
    def read_only(self) -> bool: ...

    @property
    def selected_text(self) -> str: ...

    def places(self, term: str) -> list[tuple[Place, Place]]:
        """Start and end of every match; all of them are shown until another term is asked for."""

    def move_cursor(self, location: Place, select: bool = False, center: bool = False) -> None: ...

    def focus(self, scroll_visible: bool = True) -> Widget: ...


def pattern_of(term: str) -> re.Pattern[str] | None:
    """A plain text as a pattern; None for the empty one. A capital letter in it makes case count."""
    if not term:
        return None
    return re.compile(re.escape(term), re.NOFLAG if term != term.lower() else re.IGNORECASE)


def places_of(lines: Sequence[str], pattern: re.Pattern[str] | None) -> list[tuple[Place, Place]]:
    """Start and end of every match, in order. A match lies within a line."""
    if pattern is None:
        return []
    return [
        ((row, match.start()), (row, match.end())) for row, line in enumerate(lines) for match in pattern.finditer(line)
    ]


def next_place(places: Sequence[tuple[Place, Place]], cursor: Place, backward: bool) -> int:
    """The number of the match to go to from the cursor; round at the ends. There must be one."""
    if backward:
        before = [number for number, (start, _) in enumerate(places) if start < cursor]
        return before[-1] if before else len(places) - 1
    return next((number for number, (start, _) in enumerate(places) if start >= cursor), 0)
