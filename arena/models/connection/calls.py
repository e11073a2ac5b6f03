"""Tool calls of one answer, assembled from the parts in which they arrive."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from arena.models.conversation import AnyPiece, CallPart, Kept, Retry, ToolCall

MOST_CALLS = 32
"""Maximum number of tool calls in an answer; later ones are dropped."""

ARGUMENT_CHARACTERS = 1 << 20
"""Maximum length of a call's arguments; longer ones are truncated. A kernel has some thousand characters."""
_NAME_CHARACTERS = 100


class Calls:
    """Collects an answer's pieces into `whole` calls and `kept` parts."""

    def __init__(self) -> None:
        self._parts: dict[int, list[CallPart]] = {}
        self._kept: list[dict[str, Any]] = []

    def take(self, piece: AnyPiece) -> None:
        """Adds a piece of the answer. A retry discards all earlier pieces."""
        match piece:
            case CallPart():
                self._parts.setdefault(piece.number, []).append(piece)
            case Kept() if len(self._kept) < MOST_CALLS:
                self._kept.append(piece.item)
            case Retry():
                self._parts.clear()
                self._kept.clear()

    @property
    def whole(self) -> tuple[ToolCall, ...]:
        """The calls, in the order of their first parts."""
        return tuple(
            ToolCall(
                name=_first(part.name for part in parts)[:_NAME_CHARACTERS],
                arguments="".join(part.arguments for part in parts)[:ARGUMENT_CHARACTERS],
                call_id=_first(part.call_id for part in parts),
                mark=_first(part.mark for part in parts),
            )
            for parts in self._parts.values()
        )

    @property
    def kept(self) -> tuple[dict[str, Any], ...]:
        """Parts of the answer that must go back to the provider with the results."""
        return tuple(self._kept)


_SOURCE = re.compile(r'"source"\s*:\s*"')
_WHOLE = re.compile(r'(?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*')
_HALF_A_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}$")
_BEFORE_SOURCE = 10_000
"""Maximum characters before the kernel in a call's arguments."""


class Draft:
    """Extracts the kernel from a call's arguments while they arrive. For display only, never judged."""

    def __init__(self) -> None:
        self._json = ""
        self._inside = self._over = False

    def feed(self, arguments: str) -> str:
        """Takes more of the arguments. Returns more of the kernel's text."""
        if self._over:
            return ""
        self._json += arguments
        if not self._inside:
            begin = _SOURCE.search(self._json)
            if begin is None:
                self._over = len(self._json) > _BEFORE_SOURCE
                return ""
            self._inside, self._json = True, self._json[begin.end() :]
        whole = _WHOLE.match(self._json)
        taken = whole[0] if whole is not None else ""
        if half := _HALF_A_PAIR.search(taken):
            taken = taken[: half.start()]
        self._json = self._json[len(taken) :]
        self._over = self._json.startswith('"')
        try:
            return msgspec.json.decode(f'"{taken}"', type=str)
        except ValueError:
            self._over = True
            return ""


def _first(texts: Iterable[str]) -> str:
    return next((text for text in texts if text), "")
