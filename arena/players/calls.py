"""The calls of one answer, put together from the parts in which they arrive."""

from collections.abc import Iterable
from typing import Any

from arena.players.player import AnyPiece, CallPart, Kept, Retry, ToolCall

MOST_CALLS = 32
"""Of one answer; those beyond are dropped as they arrive."""

ARGUMENT_CHARACTERS = 1 << 20
"""Of one call; what is beyond is cut off. A kernel has some thousands."""
_NAME_CHARACTERS = 100


class Calls:
    """Takes an answer's pieces; `whole` and `kept` are what came of them."""

    def __init__(self) -> None:
        self._parts: dict[int, list[CallPart]] = {}
        self._kept: list[dict[str, Any]] = []

    def take(self, piece: AnyPiece) -> None:
        """A piece of the answer. A request that is made again begins anew."""
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
        """The calls, in the order in which they were begun."""
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
        """What goes back to the provider with them."""
        return tuple(self._kept)


def _first(texts: Iterable[str]) -> str:
    return next((text for text in texts if text), "")
