"""One request to a provider: HTTP, server-sent events, retries, and limits on everything that can hang."""

import asyncio
import contextlib
import email.utils
import random
import re
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import cast
from urllib.parse import urlsplit

import httpx
import httpx_sse
import msgspec

from arena.errors import PlayerFailed
from arena.foreign_text import printable
from arena.models.connection.address import base_url
from arena.models.connection.authorities import authorities
from arena.models.connection.calls import MOST_CALLS
from arena.models.connection.halves import Halves, readable
from arena.models.connection.keys import Hiding, Key
from arena.models.connection.provider import ErrorEvent, Provider, decode, error_of
from arena.models.conversation import AnyPiece, CallPart, Conversation, Finish, Retry, Text, Thought
from arena.settings import ModelSettings

CONNECT_S = 20.0
AFTER_FINISH_S = 5.0
"""Usage may follow the end of an answer; a server that then keeps the connection open is left."""
FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 120.0
"""Limit of a wait, also for Retry-After: a provider that asks for more fails the request."""
ANSWER_CHARACTERS = 64 << 20
"""Of one answer, reasoning included; and of one event."""
UNREADABLE = Finish("unreadable", "a part of the answer cannot be read")
_BODY_BYTES = 64 << 10
_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
_TOOLS_REFUSED = frozenset({400, 404, 422, 500, 501})
_ABOUT_TOOLS = re.compile(r"\btools?\b|\btool[_ -]|function[_ ]?(call|decl)", re.IGNORECASE)
_PASSING_KINDS = frozenset(
    {
        *("overloaded_error", "api_error", "rate_limit_error", "server_error", "timeout_error"),
        *("rate_limit_exceeded", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "INTERNAL", "DEADLINE_EXCEEDED"),
        *("500", "502", "503", "504", "529"),
    }
)


class Passing(Exception):
    """A failure that may be gone next time."""

    def __init__(self, reason: str, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.wait_s = wait_s


class ToolsRefused(PlayerFailed):
    """The provider or this model of it takes no tools."""


class Stream:
    """Requests to one model. Use as an async context; each `answer` is one request and its retries."""

    def __init__(self, provider: Provider, model: ModelSettings, key: Key) -> None:
        self._provider = provider
        self._model = model
        self._key = key
        self._base = base_url(provider, model)
        self._client = httpx.AsyncClient(
            verify=authorities(),
            # Every wait between two pieces is bounded by `stall_s` below, whatever the bytes do.
            timeout=httpx.Timeout(model.stall_s, connect=min(CONNECT_S, model.stall_s), pool=None),
            follow_redirects=False,  # a redirect would carry the key to another host
            headers={"Accept": "text/event-stream", "Accept-Encoding": "identity", "User-Agent": "pkb-arena"},
        )

    async def __aenter__(self) -> "Stream":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def answer(self, conversation: Conversation) -> AsyncGenerator[AnyPiece, None]:
        """One answer, ending in `Finish`. Failures before its first piece are tried again.

        A connection that ends in the middle ends the answer as "broken", so that it can be continued.

        Raises:
            PlayerFailed: no answer could be had.
        """
        deadline = time.monotonic() + self._model.timeout_s
        for attempt in range(1, self._model.retries + 2):
            said = False
            pieces = self._once(conversation, deadline)
            try:
                async with contextlib.aclosing(pieces):
                    async for piece in pieces:
                        said = said or isinstance(piece, Text)
                        yield piece
                return
            except Passing as failure:
                if said:
                    yield Finish("broken", failure.reason)
                    return
                wait = self._wait(attempt, failure)
                if attempt > self._model.retries or time.monotonic() + wait > deadline:
                    raise self._failed(f"{failure.reason} ({attempt} attempts)", "try again later") from None
                yield Retry(attempt, wait, failure.reason)
            await asyncio.sleep(wait)

    def _wait(self, attempt: int, failure: Passing) -> float:
        if failure.wait_s is None:  # random, so that many clients do not come back together
            return float(min(FIRST_WAIT_S * 2 ** (attempt - 1), LONGEST_WAIT_S) * random.uniform(0.5, 1.0))
        if failure.wait_s > LONGEST_WAIT_S:
            raise self._failed(
                f"{failure.reason}; it asks to wait {failure.wait_s:.0f} s", "try again after that"
            )
        return max(failure.wait_s, 0.0)

    async def _once(self, conversation: Conversation, deadline: float) -> AsyncGenerator[AnyPiece, None]:
        request = self._provider.request(self._model, self._key.reveal(), conversation)
        url = self._base + request.path
        try:
            async with contextlib.AsyncExitStack() as stack:
                async with asyncio.timeout(self._left(deadline)):
                    response = await stack.enter_async_context(
                        self._client.stream("POST", url, json=request.body, headers=request.headers)
                    )
                    if response.status_code != 200:
                        await self._refuse(response, bool(conversation.tools))
                pieces = self._pieces(response, deadline)
                async with contextlib.aclosing(pieces):
                    async for piece in pieces:
                        yield piece
        except TimeoutError:
            raise self._overdue(deadline) from None
        except httpx.TimeoutException as error:
            if isinstance(error, httpx.ConnectTimeout):
                raise Passing("no connection in time") from None
            raise self._overdue(deadline) from None
        except httpx.TransportError as error:
            if isinstance(error.__context__, ssl.SSLCertVerificationError) or "CERTIFICATE" in str(error):
                raise self._failed(f"its certificate is not valid: {error}", "check base_url") from None
            raise Passing(self._clean(str(error)) or type(error).__name__) from None
        except httpx.InvalidURL as error:
            raise self._failed(f"base_url is no address: {error}", "correct it in the settings") from None

    async def _pieces(self, response: httpx.Response, deadline: float) -> AsyncGenerator[AnyPiece, None]:
        reading = _Reading(self._provider, self._key)
        source = cast(httpx.Response, _Bounded(response))
        events = httpx_sse.EventSource(source).aiter_sse()
        async with contextlib.aclosing(events):
            while not reading.over:
                limit = self._left(deadline)
                try:
                    async with asyncio.timeout(min(AFTER_FINISH_S, limit) if reading.finish else limit):
                        event = await anext(events, None)
                except httpx_sse.SSEError:
                    raise await self._no_stream(response) from None
                except (TimeoutError, httpx.TransportError):
                    if reading.finish is None:
                        raise
                    break
                if event is None:
                    break
                try:
                    found = reading.take(event.event, event.data)
                except ErrorEvent as error:
                    raise self._reported(error) from None
                except ValueError:
                    raise self._failed(
                        "its stream cannot be read", "check the model's provider and base_url"
                    ) from None
                for piece in found:
                    yield piece
        for piece in reading.held_back():
            yield piece
        if (end := reading.end) is None:
            raise Passing("the connection ended in the middle of the answer")
        yield Finish(end.reason, self._clean(end.detail))

    def _left(self, deadline: float) -> float:
        return min(self._model.stall_s, max(0.0, deadline - time.monotonic()))

    def _overdue(self, deadline: float) -> Exception:
        if time.monotonic() >= deadline:
            return self._failed(
                f"no whole answer within {self._model.timeout_s:g} s", "raise timeout_s of the model"
            )
        return Passing(f"not a word for {self._model.stall_s:g} s")

    async def _refuse(self, response: httpx.Response, tools: bool) -> None:
        """Ends a request that was not answered with a stream. tools: it offered some."""
        status = response.status_code
        text = await _body(response)
        message = f"{status} {response.reason_phrase}".strip()
        with contextlib.suppress(ValueError):
            if (error := error_of(decode(text))) is not None:
                message += f": {error}"
        message = self._clean(message)
        if tools and status in _TOOLS_REFUSED and _ABOUT_TOOLS.search(message):
            raise ToolsRefused(f"{self._model.model}: {message}", "set tools = false for this model")
        if status in _PASSING or status >= 500:
            raise Passing(message, _retry_after(response))
        raise self._failed(message, _ADVICE.get(status, "check the model's settings"))

    async def _no_stream(self, response: httpx.Response) -> Exception:
        """A 200 that is no event stream: an error object, or some other server."""
        with contextlib.suppress(ValueError, httpx.HTTPError, httpx.StreamError):
            if (error := error_of(decode(await _body(response)))) is not None:
                return self._reported(error)
        kind = response.headers.get("content-type", "no content type")
        return self._failed(f"it answered with {self._clean(kind)}, not a stream", "check base_url")

    def _reported(self, error: ErrorEvent) -> Exception:
        message = self._clean(str(error))
        return Passing(message) if error.kind in _PASSING_KINDS else self._failed(message, "")

    def _failed(self, what: str, advice: str) -> PlayerFailed:
        host = urlsplit(self._base).netloc
        return PlayerFailed(f"{self._model.model} at {host}: {what}", advice)

    def _clean(self, text: str) -> str:
        """Text of a provider in one bounded line, without the key."""
        return " ".join(printable(self._key.hide_in(readable(text))).split())[:500]


class _Reading:
    """One answer's events as pieces, without the key; knows when it is over."""

    def __init__(self, provider: Provider, key: Key) -> None:
        self._read = provider.reader()
        self._key = key
        self._text, self._thought = _Incoming(key), _Incoming(key)
        self._calls: dict[int, _Incoming] = {}
        self._left = ANSWER_CHARACTERS
        self.finish: Finish | None = None
        self.over = False

    def take(self, event: str, data: str) -> list[AnyPiece]:
        """
        Raises:
            ErrorEvent: the provider reports an error.
            ValueError: the event cannot be read, and nothing of the answer came before it.
        """
        if not data:
            return []
        try:
            return [piece for piece in map(self._shown, self._read(event, data)) if piece is not None]
        except ValueError:
            if self.finish is None:  # without the text in this event the answer may look whole
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
        """Text that was held back because it could have begun the key."""
        text = self._text.end()
        calls: list[AnyPiece] = [CallPart(number, call.end()) for number, call in self._calls.items()]
        return [*([Text(text)] if text else []), *calls]

    @property
    def end(self) -> Finish | None:
        """The way in which the answer ended; None: it has not."""
        cut = any(incoming.cut for incoming in (self._text, *self._calls.values()))
        return UNREADABLE if cut and self.finish is not None and self.finish.reason == "stop" else self.finish


class _Incoming:
    """One text of an answer: in whole characters, without the key."""

    def __init__(self, key: Key) -> None:
        self._halves, self._hiding = Halves(), Hiding(key)

    @property
    def cut(self) -> bool:
        """Half a character is due."""
        return self._halves.cut

    def feed(self, text: str) -> str:
        """As much of the text as can be shown. Raises ValueError for half a character without the other."""
        return self._hiding.feed(self._halves.feed(text))

    def end(self) -> str:
        """The text that was held back."""
        return self._hiding.end()


def _whole(piece: AnyPiece) -> AnyPiece:
    """The piece. Raises ValueError where a text in it has half a character: it could be neither kept nor sent back."""
    msgspec.json.encode(piece)
    return piece


class _Bounded:
    """What httpx-sse reads of a response, with a bound between two line ends: an endless event is none."""

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


_ADVICE = {
    400: "check the model's name and the fields in its `extra`",
    401: "check the key",
    402: "the account has no credit",
    403: "the key may not use this model",
    404: "check the model's name and base_url",
    413: "the prompt is too long for this model",
}


async def _body(response: httpx.Response) -> str:
    body = b""
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > _BODY_BYTES:
            break
    return body[:_BODY_BYTES].decode(errors="replace")


def _retry_after(response: httpx.Response) -> float | None:
    """Seconds from a Retry-After header: a number, or a date."""
    value = response.headers.get("retry-after", "").strip()
    if not value:
        return None
    try:
        return float(value) if float(value) >= 0 else None
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError):
        return None
