"""The interface of a provider's module: converts conversations into requests, and stream events into pieces."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from arena.models.conversation import AnyPiece, Conversation
from arena.settings import ModelSettings

Reader = Callable[[str, str], list[AnyPiece]]
"""(event's name, its data) -> pieces. A reader may keep state, so each answer needs a new one.

The first `Finish` gives the reason of the end. `Usage` may follow it. A second `Finish` ends the stream.
Raises ValueError for an invalid event, ErrorEvent for an error that the provider reports.
"""


@dataclass(frozen=True)
class Request:
    """One POST. `path` is appended to the base URL."""

    path: str
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    """Contains the key, so it is never shown."""


class Provider(Protocol):
    """Translates one protocol. Has no connection, and no state except in the reader of an answer."""

    base_url: str
    key_env: str

    def request(self, model: ModelSettings, key: str, conversation: Conversation) -> Request:
        """Builds the request for one streamed answer. An empty key is not sent."""

    def reader(self) -> Reader:
        """Creates the reader for one answer's events."""


class ErrorEvent(Exception):
    """The provider reported an error inside the stream."""

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


class Said(dict[str, Any]):
    """An object that a provider sent. A field that is missing or of another type is empty."""

    def text(self, name: str) -> str:
        return text_of(self.get(name))

    def number(self, name: str) -> int:
        """Returns a count of tokens, or an index."""
        return count(self.get(name))

    def object(self, name: str) -> "Said":
        return Said(object_of(self.get(name)))

    def objects(self, name: str) -> list["Said"]:
        return objects_of(self.get(name))


def decode(data: str) -> Said:
    """Decodes an event's data to an object.

    Raises:
        ValueError: it is not a JSON object.
    """
    try:
        try:
            value = msgspec.json.decode(data)
        except msgspec.DecodeError:
            value = json.loads(data)  # accepts half a character; the other half is in the next event
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return Said(value)


def error_of(value: dict[str, Any]) -> ErrorEvent | None:
    """Returns the error that an object of any protocol reports; None if it reports none."""
    error = value.get("error")
    if not error:
        return None
    if not isinstance(error, dict):
        return ErrorEvent(str(error))
    kind = error.get("type") or error.get("status") or error.get("code") or ""
    return ErrorEvent(str(error.get("message") or kind or "an error without a message"), str(kind))


def refusal_of(text: str) -> str:
    """Returns the error message in the body of a refused request, in any server's format; empty if there is none."""
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return ""
    found = (objects_of(value) or [Said()])[0] if isinstance(value, list) else object_of(value)
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


MOST_TOKENS = 1 << 40


def count(value: Any) -> int:
    """Returns a token count of at most MOST_TOKENS; 0 if it is missing. `true`, which is an int, is no count."""
    return min(value, MOST_TOKENS) if type(value) is int and value > 0 else 0


def text_of(value: Any) -> str:
    """Returns a text; empty if it is missing."""
    return value if isinstance(value, str) else ""


def object_of(value: Any) -> dict[str, Any]:
    """Returns an object; empty if it is missing."""
    return value if isinstance(value, dict) else {}


def objects_of(value: Any) -> list[Said]:
    """Returns the objects in a list; empty if the list is missing."""
    return [Said(item) for item in value if isinstance(item, dict)] if isinstance(value, list) else []
