"""Text search in a source or the log. A term in lower case matches both cases."""

import re
from collections.abc import Sequence
from typing import Any, Protocol

from textual.widget import Widget

Place = tuple[int, int]
"""Line and column, from 0."""


class Searched(Protocol):
    """A text that a bar can search: a source, or the log."""

    selection: Any
    """A `Selection`."""

    @property
    def read_only(self) -> bool: ...

    @property
    def selected_text(self) -> str: ...

    def places(self, term: str) -> list[tuple[Place, Place]]:
        """Returns start and end of every match, and highlights all matches until another term is given."""

    def move_cursor(self, location: Place, select: bool = False, center: bool = False) -> None: ...

    def focus(self, scroll_visible: bool = True) -> Widget: ...


def pattern_of(term: str) -> re.Pattern[str] | None:
    """Returns the pattern of a plain text; None if it is empty. With a capital letter it is case-sensitive."""
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
    """Returns the index of the next match from the cursor; wraps at both ends. `places` must not be empty."""
    if backward:
        before = [number for number, (start, _) in enumerate(places) if start < cursor]
        return before[-1] if before else len(places) - 1
    return next((number for number, (start, _) in enumerate(places) if start >= cursor), 0)
