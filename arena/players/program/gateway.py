"""The only network access of an agent program: requests to one model of one provider, which are counted.

The program sends plain HTTP requests. The gateway adds the key outside the jail, so that the program never has it.
It sets the model's name, so that the prices apply. It refuses requests once the budget is spent.
"""

import asyncio
import contextlib
import logging
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import httpx_sse
import msgspec

from arena.models.budget import Budget
from arena.models.conversation import Conversation
from arena.models.keys import Hiding, Key, key_for
from arena.models.network import base_url, open_client
from arena.models.provider import ErrorEvent, Reader, count, object_of, objects_of
from arena.models.providers import find_provider
from arena.players.program.bridge import CONNECTIONS
from arena.settings import ModelSettings

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


_SAMPLING = "temperature top_p top_k min_p stop seed frequency_penalty presence_penalty repetition_penalty"
_FIELDS = {
    "anthropic": "system stop_sequences temperature top_k top_p thinking output_config cache_control tool_choice",
    "openai_chat": f"{_SAMPLING} max_tokens max_completion_tokens tool_choice parallel_tool_calls response_format "
    "reasoning_effort reasoning thinking verbosity logprobs top_logprobs chat_template_kwargs prompt_cache_key",
    "openai_responses": "temperature top_p tool_choice parallel_tool_calls reasoning text include truncation prompt_cache_key",
    "gemini": "systemInstruction toolConfig safetySettings",
}
"""Fields by provider, beside those that the arena sends itself. All others, such as service_tier, are left out."""
_GEMINI_CONFIG = (
    *("temperature", "topP", "topK", "maxOutputTokens", "stopSequences", "seed", "thinkingConfig", "responseMimeType"),
    *("responseSchema", "responseJsonSchema", "presencePenalty", "frequencyPenalty"),
)
_TOOL_KEYS = (
    *("type", "name", "description", "input_schema", "parameters", "strict", "cache_control", "function", "custom"),
    *("format", "tools", "functionDeclarations"),
)
_TOOL_KINDS = (None, "function", "custom", "namespace")
"""Tools that the program runs itself. A provider's own tools reach the network, or cost money."""
_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_GROWING = frozenset(
    {"text", "content", "delta", "thinking", "partial_json", "arguments", "reasoning", "reasoning_content"}
)
"""Names of the texts that a stream continues from event to event."""


class Unasked(Exception):
    """A request that must not pass. The message says why."""


def passed_on(model: ModelSettings, asked: Any, free: bool) -> tuple[dict[str, Any], int, set[str]]:
    """Returns the body of a program's request as it may pass, the maximum tokens of its answer, and what was left out.

    free: it counts tokens only.

    Raises:
        Unasked: it is no JSON object, or the provider would fetch an address or a stored file for it.
    """
    if not isinstance(asked, dict):
        raise Unasked("the request is no JSON object")
    own = find_provider(model.provider).request(msgspec.structs.replace(model, extra={}), "", Conversation("", ())).body
    names = {*_FIELDS.get(model.provider, "").split(), *own, "tools"}
    body = {name: value for name, value in asked.items() if name in names and name not in model.omit}
    left_out = asked.keys() - names
    if "tools" in body:
        body["tools"] = _function_tools(body["tools"], left_out)
        if not body["tools"]:
            body.pop("tools"), body.pop("tool_choice", None)
    if any(map(_fetches, (body.get(name) for name in ("messages", "input", "contents", "system")))):
        raise Unasked("the provider would fetch an address or a stored file; put the data into the request")
    if "model" in asked:
        body["model"] = model.model
    if free:
        return {name: value for name, value in body.items() if name not in (*_LIMITS, "stream")}, 0, left_out
    body |= model.extra  # what the user has listed is asked for, whatever the program asks
    if "generationConfig" in own:
        config = {k: v for k, v in object_of(body.get("generationConfig")).items() if k in _GEMINI_CONFIG}
        body["generationConfig"] = config = object_of(own["generationConfig"]) | config
        return body, count(config.get("maxOutputTokens")), left_out
    limits = [name for name in _LIMITS if count(body.get(name))]
    if not limits:
        body |= {name: own[name] for name in _LIMITS if name in own and name not in model.omit}
    body |= {name: own[name] for name in ("store",) if name in own}
    if body.get("stream") and "stream_options" in own and "stream_options" not in model.omit:
        body["stream_options"] = own["stream_options"]
    return body, max([count(body.get(name)) for name in _LIMITS] or [0]) or model.max_tokens, left_out


def _function_tools(tools: Any, left_out: set[str]) -> list[dict[str, Any]]:
    kept = []
    for tool in objects_of(tools):
        kind = tool.get("type")
        shown = {name: value for name, value in tool.items() if name in _TOOL_KEYS}
        if kind == "namespace":
            shown["tools"] = _function_tools(tool.get("tools"), left_out)
        if kind in _TOOL_KINDS and shown.keys() - {"type"}:
            kept.append(shown)
        else:
            left_out.add(f"tool {kind or ', '.join(tool)}")
    return kept


def _fetches(value: Any) -> bool:
    """Whether a part of a conversation names data that the provider must fetch. Arguments of calls are only data."""
    if isinstance(value, list):
        return any(map(_fetches, value))
    if not isinstance(value, dict):
        return False
    image = value.get("image_url")
    address = image.get("url") if isinstance(image, dict) else image
    return (
        object_of(value.get("source")).get("type") in ("url", "file")
        or (isinstance(address, str) and not address.startswith("data:"))
        or not value.keys().isdisjoint(("file_id", "file_url", "fileData", "fileUri", "file_uri"))
        or isinstance(value.get("file_data"), dict)
        or any(_fetches(part) for name, part in value.items() if name in ("content", "parts", "file", "output"))
    )


def without_key(body: str, key: Key) -> str:
    """Hides the key in a whole body, also where JSON escapes its characters."""
    hidden = HiddenKey(key)
    return "".join([*hidden.feed(body), *hidden.end()])


class HiddenKey:
    """Hides the key in the events of one stream, also if it is split between events.

    An event whose text ends like the beginning of the key is held back until the next part of this text.
    """

    def __init__(self, key: Key) -> None:
        self._key = key
        self._texts: dict[tuple[Any, ...], Hiding] = {}
        self._last: dict[tuple[Any, ...], tuple[Any, Any]] = {}
        """Where each text was continued last: an object or a list, and the text's name or index in it."""
        self._held: list[Any] = []

    def feed(self, data: str) -> Iterator[str]:
        """Takes an event's data. Yields the data of the events that may pass, in order: one for each event."""
        if not self._key:
            yield data
            return
        try:
            event = [msgspec.json.decode(data)]
            self._hide(event, 0, ())
        except (ValueError, RecursionError):
            event = [msgspec.Raw(data.encode())]
        self._held.append(event)
        if not any(text.holds for text in self._texts.values()):
            yield from self._released()

    def end(self) -> Iterator[str]:
        """Yields the data of the events that were held back, after the last event."""
        for place, (holder, name) in self._last.items():
            holder[name] += self._texts[place].end()
        yield from self._released()

    def _released(self) -> Iterator[str]:
        held, self._held = self._held, []
        yield from (self._key.hide_in(msgspec.json.encode(event[0]).decode()) for event in held)

    def _hide(self, holder: Any, name: Any, place: tuple[Any, ...]) -> None:
        """Hides the key in holder[name]. place: the names and indices that lead there."""
        match holder[name]:
            case str() as said if place and name in _GROWING:
                holder[name] = self._texts.setdefault(place, Hiding(self._key)).feed(said)
                self._last[place] = (holder, name)
            case str() as said:
                holder[name] = self._key.hide_in(said)
            case dict() | list() as inner:
                for each in inner if isinstance(inner, dict) else range(len(inner)):
                    self._hide(inner, each, (*place, each))


REQUEST_BYTES = 32 << 20
DEADLINE_S = 60.0
"""Seconds for the head of a request, and for its body once it is read."""
FREE = ("/count_tokens", ":countTokens")
"""Path suffixes of requests that cost nothing."""
REFUSED = 403
"""HTTP status of refusals. Clients do not retry after it."""
_PASSED_ON = ("content-type", "anthropic-version", "accept")
_PASSED_BACK = ("content-type", "retry-after", "request-id", "x-request-id")


class Gateway:
    """Serves requests on a Unix socket, one at a time. Use as an async context."""

    def __init__(
        self,
        model: ModelSettings,
        budget: Budget,
        path: Path,
        exceeded: Callable[[str], object] = lambda limit: None,
        tell: Callable[[str], object] = lambda text: None,
    ) -> None:
        """
        exceeded: called with the limit that the program has broken. tell: called with what is left out of its requests.

        Raises:
            UsageError: no key where one is needed, or base_url is no address.
        """
        self._model, self._budget, self._path = model, budget, path
        self._provider = find_provider(model.provider)
        self._base = base_url(self._provider, model)
        self._key = key_for(self._provider, model)
        self._exceeded, self._tell = exceeded, tell
        self._left_out: set[str] = set()
        self._paths = self._allowed_paths()
        self._turn = asyncio.Lock()
        self._stack = contextlib.AsyncExitStack()

    @staticmethod
    def check(model: ModelSettings) -> None:
        """Checks that a gateway to this model can be opened. Raises UsageError as `__init__` does."""
        Gateway(model, Budget(model), Path())

    @property
    def base_path(self) -> str:
        """Path of the provider's base URL. A client's base URL must end in it."""
        return urlsplit(self._base).path

    def _allowed_paths(self) -> re.Pattern[str]:
        """Returns the paths that may be asked for. A model in a path is replaced by the program's own."""
        path, streamed, _ = self._request_path().partition(f"{self._model.model}:streamGenerateContent")
        endings = "[^/:]+(:streamGenerateContent|:generateContent|:countTokens)" if streamed else "(/count_tokens)?"
        return re.compile(re.escape(self.base_path + path) + endings)

    def _request_path(self) -> str:
        return self._provider.request(self._model, "", Conversation("", ())).path.partition("?")[0]

    async def __aenter__(self) -> "Gateway":
        import uvicorn
        from starlette.applications import Starlette
        from starlette.routing import Route
        from uvicorn.protocols.http.h11_impl import H11Protocol

        exceeded = self._exceeded
        logging.getLogger("uvicorn").addHandler(logging.NullHandler())  # what a program sends is no error of the arena

        class Connection(H11Protocol):
            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                super().connection_made(transport)
                if len(self.connections) > CONNECTIONS:
                    exceeded(f"connections: it opened more than {CONNECTIONS} to its model at once")
                    transport.abort()
                else:
                    self.loop.call_later(DEADLINE_S, self._unless_asked)

            def _unless_asked(self) -> None:
                if self.cycle is None:
                    self.transport.close()  # type: ignore[unreachable]

        class Server(uvicorn.Server):
            @contextlib.contextmanager
            def capture_signals(self) -> Iterator[None]:
                yield  # the command handles signals, not uvicorn

        route = Route("/{path:path}", self._answer, methods=["POST"])
        config = uvicorn.Config(
            Starlette(routes=[route]), uds=str(self._path), log_config=None, lifespan="off", ws="none", http=Connection
        )
        server = Server(config)
        self._client = await self._stack.enter_async_context(open_client(self._base, self._model.stall_s))
        serving = asyncio.create_task(server.serve())

        async def stop() -> None:
            server.should_exit = server.force_exit = True
            await asyncio.wait([serving])

        self._stack.push_async_callback(stop)
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        if serving.done():
            await serving
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _answer(self, request: "Request") -> "Response":
        from starlette.requests import ClientDisconnect
        from starlette.responses import Response

        path = request.url.path
        if not self._paths.fullmatch(path):
            return _refusal(f"only {self.base_path}{self._request_path()} can be reached from here")
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._turn)  # one body at a time is in memory
            try:
                async with asyncio.timeout(DEADLINE_S):
                    body = await self._body(request)
                value, most, left_out = passed_on(self._model, msgspec.json.decode(body), path.endswith(FREE))
            except ClientDisconnect:
                return Response(status_code=REFUSED)  # nobody reads it
            except TimeoutError:
                self._exceeded(f"time: the body of a request took more than {DEADLINE_S:g} s")
                return _refusal("the request came too slowly")
            except (ValueError, RecursionError):
                return _refusal("the request is no JSON object")
            except Unasked as error:
                return _refusal(str(error))
            if self._budget.reached:
                return _refusal(self._budget.reached)
            if new := sorted(left_out - self._left_out)[:20]:
                self._left_out.update(new)
                self._tell(f"[the gateway left out: {', '.join(name[:60] for name in new)}]\n")
            try:
                if most:
                    self._budget.begin(len(body))
                    stack.callback(self._budget.end)
                return await self._forwarded(request, value, most, stack)
            except httpx.HTTPError as error:
                return Response(f"the provider cannot be reached: {type(error).__name__}", 502)

    async def _body(self, request: "Request") -> bytes:
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > REQUEST_BYTES:
                self._exceeded(f"memory: a request to its model has more than {REQUEST_BYTES >> 20} MiB")
                raise Unasked("the request is too large")
        return bytes(body)

    async def _forwarded(
        self, request: "Request", value: dict[str, Any], most: int, stack: contextlib.AsyncExitStack
    ) -> "Response":
        """Sends a request to the provider and returns its answer. most: the most tokens that it may have; 0 if it is free."""
        from starlette.responses import Response, StreamingResponse

        suffix = next((end for end in (*FREE, ":generateContent") if request.url.path.endswith(end)), "")
        path = self._provider.request(self._model, "", Conversation("", ())).path
        if suffix:
            path = path.partition(":streamGenerateContent")[0] + suffix
        own = self._provider.request(self._model, self._key.reveal(), Conversation("", ())).headers
        asked = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        response = await stack.enter_async_context(
            self._client.stream(
                "POST",
                self._base + path,
                content=msgspec.json.encode(value),
                headers={**own, **asked, "accept-encoding": "identity"},
            )
        )
        told = {name: self._key.hide_in(response.headers[name]) for name in _PASSED_BACK if name in response.headers}
        if response.status_code == 200:
            stack.callback(lambda: None if self._budget.reached else self._budget.uncounted(most))
            if "text/event-stream" in response.headers.get("content-type", ""):
                open_until_end = stack.pop_all()

                class Stream(StreamingResponse):
                    async def __call__(self, *connection: Any) -> None:
                        async with open_until_end:  # also if the program is gone before the first event
                            await super().__call__(*connection)

                return Stream(self._events(response), 200, told)
        text = (await response.aread()).decode("utf-8", "replace")
        if response.is_success:
            self._count(self._provider.reader(), httpx_sse.ServerSentEvent(data=text))
        else:
            self._budget.refused()
        return Response(without_key(text, self._key), response.status_code, told)

    async def _events(self, response: httpx.Response) -> AsyncIterator[str]:
        """Yields the answer's events as they arrive, without the key, until the budget is spent."""
        reader, hidden = self._provider.reader(), HiddenKey(self._key)
        names: deque[str] = deque()

        def named(data: str) -> str:
            name = names.popleft()
            lines = [f"event: {name}"] if name and name != "message" else []
            return "\n".join([*lines, *(f"data: {line}" for line in data.split("\n"))]) + "\n\n"

        async for event in httpx_sse.EventSource(response).aiter_sse():
            self._count(reader, event)
            names.append(self._key.hide_in(event.event))
            for data in hidden.feed(event.data):
                yield named(data)
            if self._budget.reached:
                break
        for data in hidden.end():
            yield named(data)

    def _count(self, reader: Reader, event: httpx_sse.ServerSentEvent) -> None:
        try:
            for piece in reader(event.event, event.data):
                self._budget.count(piece)
        except ErrorEvent:
            self._budget.refused()
        except (ValueError, RecursionError):
            pass  # the program gets it as it is; the answer then costs its maximum


def _refusal(why: str) -> "Response":
    from starlette.responses import JSONResponse

    return JSONResponse({"type": "error", "error": {"type": "refused", "message": f"pkb-arena: {why}"}}, REFUSED)
