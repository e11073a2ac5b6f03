"""The pieces that a model yields while it writes, and the conversation that it answers.

`Text` pieces in order are the answer. `Finish` comes exactly once, last.
"""

from typing import Any

import msgspec


class Tool(msgspec.Struct, frozen=True):
    """Something that a model may call."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON schema of the arguments: an object."""


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call, as the model wrote it."""

    name: str
    arguments: str
    """JSON, as the model wrote it; it may be invalid."""
    call_id: str = ""
    mark: str = ""
    """Signature of a call by some providers; it goes back to them with the call."""

    @property
    def values(self) -> dict[str, Any]:
        """The arguments as an object; empty when they are none."""
        try:
            values = msgspec.json.decode(self.arguments)
        except (ValueError, RecursionError):
            return {}
        return values if isinstance(values, dict) else {}


class ToolResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a call."""

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
    """Of an assistant, after its text."""
    results: tuple[ToolResult, ...] = ()
    """Of a user: nothing but the results of the calls before, in their order."""
    kept: tuple[dict[str, Any], ...] = ()
    """Of an assistant: parts that go back to its provider with the text, such as signed reasoning."""

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
        """The conversation with more turns."""
        return Conversation(self.system, (*self.messages, *messages), self.tools)

    def offering(self, *tools: Tool) -> "Conversation":
        """The conversation with these tools and no others."""
        return Conversation(self.system, self.messages, tools)

    @property
    def characters(self) -> int:
        """Length of all texts."""
        described = sum(len(tool.name) + len(tool.description) for tool in self.tools)
        return len(self.system) + described + sum(message.characters for message in self.messages)


class Piece(msgspec.Struct, tag_field="type", frozen=True):
    """Base of all pieces."""


class Text(Piece, tag="text", frozen=True):
    """More of the answer."""

    text: str


class Thought(Piece, tag="thought", frozen=True):
    """More of the model's reasoning, where the provider shows it. No part of the answer."""

    text: str


class CallPart(Piece, tag="call_part", frozen=True):
    """More of a call. The parts of one call have its number; name, id and mark come with the first or later."""

    number: int
    arguments: str = ""
    name: str = ""
    call_id: str = ""
    mark: str = ""


class Kept(Piece, tag="kept", frozen=True):
    """A part that goes back to the provider when the conversation continues: see `Message.kept`."""

    item: dict[str, Any]


class Usage(Piece, tag="usage", frozen=True):
    """Tokens of one request so far, as the provider counts them; each replaces the one before."""

    read: int
    written: int
    """Reasoning included."""


class Retry(Piece, tag="retry", frozen=True):
    """A request failed and is made again after a wait."""

    attempt: int
    """The one that failed, from 1."""
    wait_s: float
    reason: str
    refused: bool = False
    """The provider answered with an error, or was not reached."""


class Finish(Piece, tag="finish", frozen=True):
    """The end of the answer."""

    reason: str
    """ "stop": complete. "length": cut off by a limit. "broken": the connection ended in the middle.
    "refusal": the model or its provider declined. "budget": the budget was spent.
    "unreadable": a part of it cannot be read, so that it is worth nothing."""
    detail: str = ""


AnyPiece = Text | Thought | CallPart | Kept | Usage | Retry | Finish
