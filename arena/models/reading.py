"""Converts the events of an answer into pieces: complete characters, without the key, with a limited length."""

import codecs
from collections.abc import AsyncIterator

import httpx
import msgspec

from arena.models.conversation import MOST_CALLS, AnyPiece, CallPart, Finish, Text, Thought
from arena.models.keys import Hiding, Key
from arena.models.provider import Provider

ANSWER_CHARACTERS = 64 << 20
"""Maximum length of an answer, reasoning included, and of an event."""
UNREADABLE = Finish("unreadable", "a part of the answer cannot be read")


def joined(text: str) -> str:
    """Joins the halves in a text. Raises ValueError for a half without the other."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def readable(text: str) -> str:
    """Joins the halves in a text. A half without the other becomes U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def characters(text: str) -> int:
    """Returns the length of a piece. A split character counts once, with its first half."""
    return len(text) - sum("\udc00" <= character < "\ue000" for character in text)


class Reading:
    """Converts the events of one answer into pieces without the key. `over`: whether the answer has ended."""

    def __init__(self, provider: Provider, key: Key) -> None:
        self._read = provider.reader()
        self._key = key
        self._text, self._thought = _Incoming(key), _Incoming(key)
        self._calls: dict[int, _Incoming] = {}
        self._left = ANSWER_CHARACTERS
        self.finish: Finish | None = None
        self.over = False

    def take(self, event: str, data: str) -> list[AnyPiece]:
        """Converts an event into pieces.

        Raises:
            ErrorEvent: the provider reports an error.
            ValueError: the event cannot be read, and no part of the answer came before it.
        """
        if not data:
            return []
        try:
            return [piece for piece in map(self._shown, self._read(event, data)) if piece is not None]
        except ValueError:
            if self.finish is None:  # otherwise an answer without this event's text could pass as complete
                if self._left == ANSWER_CHARACTERS:
                    raise
                self.finish, self.over = UNREADABLE, True
            return []

    def _shown(self, piece: AnyPiece) -> AnyPiece | None:
        match piece:
            case Finish():
                self.over = self.finish is not None
                self.finish = self.finish or piece
                return None
            case Text() | Thought():
                self._count(len(piece.text))
                incoming = self._text if isinstance(piece, Text) else self._thought
                text = incoming.feed(piece.text)
                return type(piece)(text) if text else None
            case CallPart():
                return self._call_part(piece)
            case _:
                return _whole(piece)

    def _call_part(self, piece: CallPart) -> AnyPiece | None:
        if piece.number not in self._calls and len(self._calls) >= MOST_CALLS:
            return None
        self._count(len(piece.arguments))
        hidden = self._calls.setdefault(piece.number, _Incoming(self._key)).feed(piece.arguments)
        return _whole(msgspec.structs.replace(piece, arguments=hidden, name=self._key.hide_in(piece.name)))

    def _count(self, characters: int) -> None:
        self._left -= characters
        if self._left < 0 and self.finish is None:
            self.finish, self.over = Finish("length", "the answer is endless"), True

    def held_back(self) -> list[AnyPiece]:
        """Returns the text that was held back because it could be the beginning of the key."""
        texts: list[Thought | Text] = [Thought(self._thought.end()), Text(self._text.end())]
        calls: list[AnyPiece] = [CallPart(number, call.end()) for number, call in self._calls.items()]
        return [*(piece for piece in texts if piece.text), *calls]

    @property
    def end(self) -> Finish | None:
        """The end of the answer; None if it has not ended."""
        cut = any(incoming.cut for incoming in (self._text, *self._calls.values()))
        return UNREADABLE if cut and self.finish is not None and self.finish.reason == "stop" else self.finish


class _Incoming(Hiding):
    """Filters one text of an answer: joins split characters and hides the key."""

    def __init__(self, key: Key) -> None:
        super().__init__(key)
        self._characters = codecs.getincrementaldecoder("utf-16-le")()

    @property
    def cut(self) -> bool:
        """Whether the second half of a character is missing."""
        return bool(self._characters.getstate()[0])

    def feed(self, text: str) -> str:
        """Returns the text that can be shown already. Raises ValueError for half a character without the other."""
        return super().feed(self._characters.decode(text.encode("utf-16-le", "surrogatepass")))


def _whole(piece: AnyPiece) -> AnyPiece:
    """Returns the piece. Raises ValueError if a text in it has half a character, which could not be stored or sent."""
    msgspec.json.encode(piece)
    return piece


class Bounded:
    """The part of a response that httpx-sse reads. Limits the length of a line, so that an event cannot be endless."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self.headers = response.headers

    async def aiter_text(self) -> AsyncIterator[str]:
        line = 0
        async for text in self._response.aiter_text():
            end = text.rfind("\n")
            line = len(text) - end if end >= 0 else line + len(text)
            if line > ANSWER_CHARACTERS:
                raise httpx.ReadError("an event without an end")
            yield text
