"""The interface of a provider's module: a conversation as a request, and the meaning of its stream's events."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from arena.models.conversation import AnyPiece, Conversation
from arena.settings import ModelSettings

Reader = Callable[[str, str], list[AnyPiece]]
"""(event's name, its data) -> pieces. One per answer: it may remember.

The first `Finish` says how the answer ended; usage may still follow it; a second one ends the stream.
Raises ValueError for what is no event, ErrorEvent for an error that the provider reports.
"""


@dataclass(frozen=True)
class Request:
    """One POST. `path` is appended to the base URL."""

    path: str
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    """The key is in here: never shown."""


class Provider(Protocol):
    """Pure translation: no connection, no state beyond one answer's reader."""

    base_url: str
    key_env: str

    def request(self, model: ModelSettings, key: str, conversation: Conversation) -> Request:
        """The request for one streamed answer; an empty key sends none."""

    def reader(self) -> Reader:
        """The reader of the answer's events."""


class ErrorEvent(Exception):
    """The provider reported an error inside the stream."""

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


def decode(data: str) -> dict[str, Any]:
    """An event's data as an object.

    Raises:
        ValueError: it is not a JSON object.
    """
    try:
        try:
            value = msgspec.json.decode(data)
        except msgspec.DecodeError:
            value = json.loads(data)  # takes half a character, whose other half is in the next event
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def error_of(value: dict[str, Any]) -> ErrorEvent | None:
    """The error that an object of any of the protocols reports, if it does."""
    error = value.get("error")
    if not error:
        return None
    if not isinstance(error, dict):
        return ErrorEvent(str(error))
    kind = error.get("type") or error.get("status") or error.get("code") or ""
    return ErrorEvent(str(error.get("message") or kind or "an error without a message"), str(kind))


def refusal_of(text: str) -> str:
    """The error in the body of a refused request, in the words of any of the servers; empty where there is none."""
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return ""
    found = (objects_of(value) or [{}])[0] if isinstance(value, list) else object_of(value)
    if (error := error_of(found)) is not None:
        return str(error)
    details = found.get("detail") or found.get("message")
    if isinstance(details, str):
        return details
    said = []
    for detail in objects_of(details):
        place = detail.get("loc")
        words = str(detail.get("msg") or detail.get("message"))
        said.append(": ".join([".".join(map(str, place)), words]) if isinstance(place, list) else words)
    return "; ".join(said)


def count(value: Any) -> int:
    """A token count that may be missing."""
    return value if isinstance(value, int) and value > 0 else 0


def text_of(value: Any) -> str:
    """A text that may be missing."""
    return value if isinstance(value, str) else ""


def object_of(value: Any) -> dict[str, Any]:
    """An object that may be missing."""
    return value if isinstance(value, dict) else {}


def objects_of(value: Any) -> list[dict[str, Any]]:
    """The objects of a list that may be missing."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
