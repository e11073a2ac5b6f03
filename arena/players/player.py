"""What a player of any kind says while it writes a kernel: an async iterator of the pieces below.

`Text` pieces in order are the answer. `Finish` comes exactly once, last.
"""

from collections.abc import AsyncGenerator
from typing import Protocol

import msgspec


class Message(msgspec.Struct, frozen=True):
    """One turn of a conversation."""

    role: str
    """ "user" or "assistant"."""
    content: str


class Conversation(msgspec.Struct, frozen=True):
    """What a model is given."""

    system: str
    messages: tuple[Message, ...]

    def then(self, *messages: Message) -> "Conversation":
        """The conversation with more turns."""
        return Conversation(self.system, (*self.messages, *messages))

    @property
    def characters(self) -> int:
        """Length of all texts."""
        return len(self.system) + sum(len(message.content) for message in self.messages)


class Piece(msgspec.Struct, tag_field="type", frozen=True):
    """Base of all pieces."""


class Text(Piece, tag="text", frozen=True):
    """More of the answer."""

    text: str


class Thought(Piece, tag="thought", frozen=True):
    """More of the model's reasoning, where the provider shows it. No part of the answer."""

    text: str


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


class Finish(Piece, tag="finish", frozen=True):
    """How the answer ended."""

    reason: str
    """ "stop": complete. "length": cut off by a limit. "broken": the connection ended in the middle.
    "refusal": the model or its provider declined. "budget": the budget was spent."""
    detail: str = ""


AnyPiece = Text | Thought | Usage | Retry | Finish


class Player(Protocol):
    """Writes answers."""

    @property
    def name(self) -> str:
        """Shown, and stored with results: `model:NAME`."""

    def write(self, conversation: Conversation) -> AsyncGenerator[AnyPiece, None]:
        """One answer. Closing the iterator, or cancelling its task, ends the request at once.

        Raises:
            PlayerFailed: no answer could be had.
        """
