"""The pieces that a model yields while it writes, and the conversation that it answers.

`Text` pieces in order are the answer. `Finish` comes exactly once, last. Texts for models are files (`read_template`).
"""

import functools
import re
from collections.abc import Iterable
from pathlib import Path
from string import Template
from typing import Any

import msgspec


class Tool(msgspec.Struct, frozen=True):
    """A tool that a model may call."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON schema of the arguments: an object."""


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool call, as the model wrote it."""

    name: str
    arguments: str
    """JSON, as the model wrote it; it may be invalid."""
    call_id: str = ""
    mark: str = ""
    """Signature that some providers add to a call and require back with it."""

    @property
    def values(self) -> dict[str, Any]:
        """The arguments as an object; empty if they are not a JSON object."""
        try:
            values = msgspec.json.decode(self.arguments)
        except (ValueError, RecursionError):
            return {}
        return values if isinstance(values, dict) else {}


class ToolResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a tool call."""

    name: str
    text: str
    call_id: str = ""
    error: bool = False


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One turn of a conversation."""

    role: str
    """ "user" or "assistant"."""
    content: str
    calls: tuple[ToolCall, ...] = ()
    """In an assistant's turn: the tool calls after the text."""
    results: tuple[ToolResult, ...] = ()
    """In a user's turn: the results of the previous calls, in their order. Such a turn has no other content."""
    kept: tuple[dict[str, Any], ...] = ()
    """In an assistant's turn: parts that must go back to its provider with the text, such as signed reasoning."""

    @property
    def characters(self) -> int:
        """Length of all texts."""
        written = sum(len(call.name) + len(call.arguments) for call in self.calls)
        return len(self.content) + written + sum(len(result.text) for result in self.results)


class Conversation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The input of a model."""

    system: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    """Tools that it may call."""

    def then(self, *messages: Message) -> "Conversation":
        """Returns the conversation with more turns."""
        return Conversation(self.system, (*self.messages, *messages), self.tools)

    def offering(self, *tools: Tool) -> "Conversation":
        """Returns the conversation with these tools and no others."""
        return Conversation(self.system, self.messages, tools)

    @property
    def characters(self) -> int:
        """Length of all texts."""
        described = sum(len(tool.name) + len(tool.description) for tool in self.tools)
        return len(self.system) + described + sum(message.characters for message in self.messages)


class Text(msgspec.Struct, frozen=True):
    """More text of the answer."""

    text: str


class Thought(msgspec.Struct, frozen=True):
    """More of the model's reasoning, if the provider shows it. Not a part of the answer."""

    text: str


class CallPart(msgspec.Struct, frozen=True):
    """A part of a tool call. All parts of a call have its number. Name, id and mark may come with any part."""

    number: int
    arguments: str = ""
    name: str = ""
    call_id: str = ""
    mark: str = ""


class Kept(msgspec.Struct, frozen=True):
    """A part that must go back to the provider when the conversation continues: see `Message.kept`."""

    item: dict[str, Any]


class Usage(msgspec.Struct, frozen=True):
    """Tokens of one request so far, as the provider counts them. Each `Usage` replaces the previous one."""

    read: int
    written: int
    """Tokens of the answer, reasoning included."""


class Retry(msgspec.Struct, frozen=True):
    """A request failed and will be repeated after `wait_s` seconds."""

    attempt: int
    """Number of the failed request, from 1."""
    wait_s: float
    reason: str
    refused: bool = False
    """Whether the provider answered with an error or was not reached."""


class Finish(msgspec.Struct, frozen=True):
    """The end of the answer."""

    reason: str
    """ "stop": complete. "length": truncated by a limit. "broken": the connection ended in the middle.
    "refusal": the model or its provider declined. "budget": the budget was spent.
    "unreadable": a part cannot be read, so the whole answer is discarded."""
    detail: str = ""


AnyPiece = Text | Thought | CallPart | Kept | Usage | Retry | Finish


TEMPLATES = "v1"
"""The version in use."""

_FOLDER = Path(__file__).parent / "prompt_texts" / TEMPLATES
EXAMPLES = _FOLDER / "examples"
"""The folder of the worked examples."""


@functools.cache
def read_template(name: str) -> str:
    """Reads a template. name: the file name without .md."""
    return (_FOLDER / f"{name}.md").read_text(encoding="utf-8").strip()


def fill_template(name: str, **values: object) -> str:
    """Reads a template and replaces its ${names}. Raises KeyError if a value is missing."""
    return Template(read_template(name)).substitute(values)


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
