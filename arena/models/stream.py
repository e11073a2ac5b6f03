"""Requests to a provider: HTTP, server-sent events, retries, and timeouts for everything that can block."""

import asyncio
import contextlib
import email.utils
import random
import re
import ssl
import time
from collections.abc import AsyncGenerator
from functools import cached_property
from typing import cast
from urllib.parse import urlsplit

import httpx
import httpx_sse

from arena.errors import PlayerFailed
from arena.models.conversation import AnyPiece, Conversation, Finish, Retry, Text
from arena.models.keys import Key
from arena.models.network import base_url, open_client, proxy_for
from arena.models.provider import ErrorEvent, Provider, Request, refusal_of
from arena.models.reading import ANSWER_CHARACTERS, Bounded, Reading, readable
from arena.settings import ModelSettings
from arena.words.untrusted_text import printable

AFTER_FINISH_S = 5.0
"""Maximum wait for token counts after the end of an answer. Then the connection is closed."""
FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 120.0
"""Maximum wait before a retry. If a provider asks for more with Retry-After, the request fails."""
_BODY_BYTES = 64 << 10
_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
_OF_PROXIES = frozenset({407, 502, 503, 504})
_TOOLS_REFUSED = frozenset({400, 404, 422, 500, 501})
_FIELD_REFUSED = frozenset({400, 422})
_LIMITS = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
"""Two names of the same field. A model that refuses one accepts the other."""
_UNKNOWN = re.compile(r"unsupported|not supported|unrecogni|unknown|unexpected|not permitted|instead", re.IGNORECASE)
_LIMIT_NAMES: dict[tuple[str, str], dict[str, str]] = {}
"""(base URL, model) -> renamed limit field, learned from an earlier refusal."""
_NO_CREDIT = "insufficient_quota"
_ABOUT_TOOLS = re.compile(r"\btools?\b|\btool[_ -]|function[_ ]?(call|decl)", re.IGNORECASE)
_PASSING_KINDS = frozenset(
    {
        *("overloaded_error", "api_error", "rate_limit_error", "server_error", "timeout_error"),
        *("rate_limit_exceeded", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "INTERNAL", "DEADLINE_EXCEEDED"),
        *("500", "502", "503", "504", "529"),
    }
)


class Passing(Exception):
    """A transient failure: a retry may succeed. refused: as in `Retry`."""

    advice = "try again later"
    """For the case that no retry succeeds."""

    def __init__(self, reason: str, wait_s: float | None = None, refused: bool = False) -> None:
        """wait_s: the provider's own request."""
        super().__init__(reason)
        self.reason = reason
        self.wait_s = wait_s
        self.refused = refused


class Refused(PlayerFailed):
    """The provider answered with an error, or was not reached."""


class ToolsRefused(Refused):
    """The provider or its model does not support tools."""


class Stream:
    """Sends requests to one model. Use as an async context. Each `answer` is one request with its retries."""

    def __init__(self, provider: Provider, model: ModelSettings, key: Key) -> None:
        self._provider = provider
        self._model = model
        self._key = key
        self._base = base_url(provider, model)
        self._proxy = proxy_for(self._base)

    async def __aenter__(self) -> "Stream":
        return self

    async def __aexit__(self, *_: object) -> None:
        if "_client" in self.__dict__:
            await self._client.aclose()

    @cached_property
    def _client(self) -> httpx.AsyncClient:
        """The HTTP client, created with the first request. Reads time out after `stall_s` seconds without data."""
        headers = {"Accept": "text/event-stream", "Accept-Encoding": "identity", "User-Agent": "pkb-arena"}
        try:
            return open_client(self._base, self._model.stall_s, headers)
        except PlayerFailed as error:
            raise self._failed(error.message, error.advice, refused=True) from None

    async def answer(self, conversation: Conversation) -> AsyncGenerator[AnyPiece, None]:
        """Yields one answer, ending with `Finish`. Retries transient failures that come before the answer's text.

        After a later failure the answer finishes as "broken", so that it can be continued.

        Raises:
            PlayerFailed: there is no answer.
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
                    reason = f"{failure.reason} ({attempt} attempts)"
                    raise self._failed(reason, failure.advice, failure.refused) from None
                yield Retry(attempt, wait, failure.reason, failure.refused)
            await asyncio.sleep(wait)

    def _wait(self, attempt: int, failure: Passing) -> float:
        if failure.wait_s is None:  # random, so that many clients do not retry at the same time
            return float(min(FIRST_WAIT_S * 2 ** (attempt - 1), LONGEST_WAIT_S) * random.uniform(0.5, 1.0))
        if failure.wait_s > LONGEST_WAIT_S:
            reason = f"{failure.reason}; it asks to wait {failure.wait_s:.0f} s"
            raise self._failed(reason, "try again after that", failure.refused)
        return max(failure.wait_s, 0.0)

    async def _once(self, conversation: Conversation, deadline: float) -> AsyncGenerator[AnyPiece, None]:
        request = self._provider.request(self._model, self._key.reveal(), conversation)
        try:
            async with contextlib.AsyncExitStack() as stack:
                async with asyncio.timeout(self._left(deadline)):
                    response = await self._ask(stack, request, bool(conversation.tools))
                pieces = self._pieces(response, deadline)
                async with contextlib.aclosing(pieces):
                    async for piece in pieces:
                        yield piece
        except TimeoutError:
            raise self._overdue(deadline) from None
        except httpx.TimeoutException as error:
            if isinstance(error, httpx.ConnectTimeout):
                raise Passing(self._through_proxy("no connection in time"), refused=True) from None
            raise self._overdue(deadline) from None
        except httpx.TransportError as error:
            if isinstance(error.__context__, ssl.SSLCertVerificationError) or "CERTIFICATE" in str(error):
                raise self._failed(f"its certificate is not valid: {error}", "check base_url", refused=True) from None
            reason = self._through_proxy(self._clean(str(error)) or type(error).__name__)
            if isinstance(error, httpx.ProxyError) and str(error).startswith("4"):
                raise self._failed(reason, "check the proxy's name and password", refused=True) from None
            passing = Passing(reason, refused=isinstance(error, httpx.ConnectError | httpx.ProxyError))
            if isinstance(error, httpx.ConnectError) and self._model.base_url and self._proxy is None:
                server = f"is the server at {urlsplit(self._base).netloc} running? check base_url"
                passing.advice = "`pkb-arena stand-in` starts it" if self._model.is_free else server
            raise passing from None
        except httpx.InvalidURL as error:
            raise self._failed(f"base_url is no address: {error}", "correct it in the settings", refused=True) from None

    async def _ask(self, stack: contextlib.AsyncExitStack, request: Request, tools: bool) -> httpx.Response:
        """Sends a request. Returns its response if the status is 200, else raises.

        Repeats it once if the model refuses the name of the limit field. tools: whether the request offers tools.
        """
        names = _LIMIT_NAMES.get((self._base, self._model.model), {})
        body = {names.get(name, name): value for name, value in request.body.items()}
        body = {name: value for name, value in body.items() if name not in self._model.omit}
        response = await stack.enter_async_context(
            self._client.stream("POST", self._base + request.path, json=body, headers=request.headers)
        )
        if response.status_code == 200:
            return response
        text = await _body(response, _BODY_BYTES)
        for name in body.keys() & _LIMITS.keys():
            if not names and response.status_code in _FIELD_REFUSED and name in text and _UNKNOWN.search(text):
                _LIMIT_NAMES[self._base, self._model.model] = {name: _LIMITS[name]}
                return await self._ask(stack, request, tools)
        raise self._refused(response, text, tools)

    async def _pieces(self, response: httpx.Response, deadline: float) -> AsyncGenerator[AnyPiece, None]:
        reading = Reading(self._provider, self._key)
        kind = response.headers.get("content-type", "no content type")
        whole = kind.partition(";")[0].strip() == "application/json"
        source = cast(httpx.Response, Bounded(response))
        events = _whole(response) if whole else httpx_sse.EventSource(source).aiter_sse()
        async with contextlib.aclosing(events):
            while not reading.over:
                limit = self._left(deadline)
                try:
                    async with asyncio.timeout(min(AFTER_FINISH_S, limit) if reading.finish else limit):
                        event = await anext(events, None)
                except httpx_sse.SSEError:
                    raise self._no_stream(kind) from None
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
                    if whole:
                        raise self._no_stream(kind) from None
                    raise self._failed("its stream cannot be read", "check the model's provider and base_url") from None
                for piece in found:
                    yield piece
        for piece in reading.held_back():
            yield piece
        if (end := reading.end) is None:
            if whole:
                raise self._no_stream(kind)
            raise Passing("the connection ended in the middle of the answer")
        yield Finish(end.reason, self._clean(end.detail))

    def _left(self, deadline: float) -> float:
        return min(self._model.stall_s, max(0.0, deadline - time.monotonic()))

    def _overdue(self, deadline: float) -> Exception:
        if time.monotonic() >= deadline:
            return self._failed(f"no whole answer within {self._model.timeout_s:g} s", "raise timeout_s of the model")
        return Passing(f"no data for {self._model.stall_s:g} s")

    def _refused(self, response: httpx.Response, text: str, tools: bool) -> Exception:
        """Returns the error for a status other than 200. tools: whether the request offered tools."""
        status = response.status_code
        message = self._through_proxy(f"{status} {response.reason_phrase}".strip(), status in _OF_PROXIES)
        if refusal := refusal_of(text):
            message += f": {refusal}"
        message = self._clean(message)
        if tools and status in _TOOLS_REFUSED and _ABOUT_TOOLS.search(message):
            return ToolsRefused(f"{self._model.model}: {message}", "set tools = false for this model")
        if _NO_CREDIT in text:
            return self._failed(message, _ADVICE[402], refused=True)
        if status in _PASSING or status >= 500:
            return Passing(message, _retry_after(response), refused=True)
        return self._failed(message, _ADVICE.get(status, "check the model's settings"), refused=True)

    def _no_stream(self, kind: str) -> Exception:
        """Returns the error for a status 200 that is neither an event stream nor an answer: not a provider's server."""
        return self._failed(f"it answered with {self._clean(kind)}, not a stream", "check base_url")

    def _through_proxy(self, message: str, its_own: bool = True) -> str:
        """Adds the proxy's name to a message, if there is a proxy. its_own: whether the proxy may be the cause."""
        return f"{message}, through the proxy {self._proxy}" if self._proxy is not None and its_own else message

    def _reported(self, error: ErrorEvent) -> Exception:
        message = self._clean(str(error))
        if error.kind in _PASSING_KINDS:
            return Passing(message, refused=True)
        return self._failed(message, "", refused=True)

    def _failed(self, what: str, advice: str, refused: bool = False) -> PlayerFailed:
        message = f"{self._model.model} at {urlsplit(self._base).netloc}: {what}"
        return Refused(message, advice) if refused else PlayerFailed(message, advice)

    def _clean(self, text: str) -> str:
        """Makes a provider's text one printable line of at most 500 characters, without the key."""
        return " ".join(printable(self._key.hide_in(readable(text))).split())[:500]


_ADVICE = {
    400: "check the model's name and the fields in its `extra`",
    401: "check the key",
    402: "the account has no credit",
    403: "the key may not use this model",
    404: "check the model's name and base_url",
    413: "the prompt is too long for this model",
}


async def _body(response: httpx.Response, most: int) -> str:
    body = b""
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > most:
            break
    return body[:most].decode(errors="replace")


async def _whole(response: httpx.Response) -> AsyncGenerator[httpx_sse.ServerSentEvent, None]:
    """Yields an answer that was not streamed as one event."""
    yield httpx_sse.ServerSentEvent(data=await _body(response, ANSWER_CHARACTERS))


def _retry_after(response: httpx.Response) -> float | None:
    """Reads the seconds of a Retry-After header, which is a number or a date; None without a valid one."""
    value = response.headers.get("retry-after", "").strip()
    if not value:
        return None
    try:
        return float(value) if float(value) >= 0 else None
    except ValueError:
        pass
    read = email.utils.parsedate_to_datetime
    try:  # this machine's clock may be wrong
        now = read(date).timestamp() if (date := response.headers.get("date")) else time.time()
        return max(0.0, read(value).timestamp() - now)
    except (ValueError, TypeError):
        return None
