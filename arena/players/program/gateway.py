"""The only network access of an agent program: requests to one model of one provider, which are counted.

The program sends plain HTTP requests. The gateway adds the key outside the jail, so that the program never has it.
It sets the model's name, so that the prices apply. It refuses requests once the budget is spent.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import httpx_sse
import msgspec

from arena.models.budget import Budget
from arena.models.connection.address import base_url, is_local
from arena.models.connection.keys import Key, find_key
from arena.models.connection.network import open_client
from arena.models.connection.provider import ErrorEvent, Reader, count, object_of
from arena.models.conversation import Conversation, Text, Usage
from arena.models.providers import find_provider
from arena.settings import ModelSettings

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

REQUEST_BYTES = 32 << 20
FREE = "/count_tokens"
"""Path suffix of a request that costs nothing."""
REFUSED = 403
"""HTTP status of refusals. Clients do not retry after it."""
_READ = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "prompt_tokens", "promptTokenCount")
_WRITTEN = ("output_tokens", "completion_tokens", "candidatesTokenCount")
_PASSED_ON = ("content-type", "anthropic-version", "anthropic-beta", "openai-beta", "accept")
_PASSED_BACK = ("content-type", "retry-after", "request-id", "x-request-id")


class Gateway:
    """Serves requests on a Unix socket, one at a time. Use as an async context."""

    def __init__(self, model: ModelSettings, budget: Budget, path: Path) -> None:
        """
        Raises:
            UsageError: there is no such provider, or no key where one is needed.
        """
        self._model, self._budget, self._path = model, budget, path
        self._provider = find_provider(model.provider)
        self._base = base_url(self._provider, model)
        here = is_local(self._base) and not model.key_env
        self._key = Key("") if here else find_key(model.key_env or self._provider.key_env, required=True)
        self._allowed = urlsplit(self._base).path + self._request_path()
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

    def _request_path(self) -> str:
        return self._provider.request(self._model, "", Conversation("", ())).path.partition("?")[0]

    async def __aenter__(self) -> "Gateway":
        import uvicorn
        from starlette.applications import Starlette
        from starlette.routing import Route

        class Server(uvicorn.Server):
            @contextlib.contextmanager
            def capture_signals(self) -> Iterator[None]:
                yield  # the command handles signals, not uvicorn

        route = Route("/{path:path}", self._answer, methods=["POST"])
        config = uvicorn.Config(
            Starlette(routes=[route]), uds=str(self._path), log_config=None, lifespan="off", ws="none"
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
        from starlette.responses import Response, StreamingResponse

        path = request.url.path
        if path not in (self._allowed, self._allowed + FREE):
            return _refusal(f"only {self._allowed} can be reached from here")
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > REQUEST_BYTES:
                return _refusal("the request is too large")
        try:
            value = object_of(msgspec.json.decode(body))
        except (ValueError, RecursionError):
            return _refusal("the request is no JSON object")
        if "model" in value:
            value["model"] = self._model.model
        await self._turn.acquire()
        stack = contextlib.AsyncExitStack()
        stack.callback(self._turn.release)
        try:
            if self._budget.reached:
                await stack.aclose()
                return _refusal(self._budget.reached)
            if not path.endswith(FREE):
                self._budget.begin(len(body))
                stack.callback(self._budget.end)
            response = await stack.enter_async_context(
                self._client.stream(
                    "POST",
                    self._base + path.removeprefix(urlsplit(self._base).path),
                    content=msgspec.json.encode(value),
                    headers=self._headers(request.headers),
                )
            )
            back = {name: response.headers[name] for name in _PASSED_BACK if name in response.headers}
            if response.status_code == 200 and "text/event-stream" in response.headers.get("content-type", ""):
                return StreamingResponse(self._events(response, stack), 200, back)
            text = self._key.hide_in((await response.aread()).decode("utf-8", "replace"))
            if response.is_success:
                self._count_whole(text)
            else:
                self._budget.refused()
        except httpx.HTTPError as error:
            await stack.aclose()
            return Response(f"the provider cannot be reached: {type(error).__name__}", 502)
        except BaseException:
            await stack.aclose()
            raise
        await stack.aclose()
        return Response(text, response.status_code, back)

    def _headers(self, asked: Any) -> dict[str, str]:
        own = self._provider.request(self._model, self._key.reveal(), Conversation("", ())).headers
        return {**own, **{name: asked[name] for name in _PASSED_ON if name in asked}, "accept-encoding": "identity"}

    async def _events(self, response: httpx.Response, stack: contextlib.AsyncExitStack) -> AsyncIterator[str]:
        """Yields the answer's events as they arrive, until the budget is spent."""
        reader = self._provider.reader()
        async with stack:
            async for event in httpx_sse.EventSource(response).aiter_sse():
                self._count(reader, event)
                lines = [f"event: {event.event}"] if event.event and event.event != "message" else []
                yield "\n".join([*lines, *(f"data: {line}" for line in event.data.split("\n"))]) + "\n\n"
                if self._budget.reached:
                    return

    def _count(self, reader: Reader, event: httpx_sse.ServerSentEvent) -> None:
        with contextlib.suppress(ValueError, ErrorEvent):
            for piece in reader(event.event, event.data):
                self._budget.count(piece)

    def _count_whole(self, text: str) -> None:
        self._budget.count(Text(text))
        with contextlib.suppress(ValueError, RecursionError):
            value = object_of(msgspec.json.decode(text))
            said = object_of(value.get("usage") or value.get("usageMetadata"))
            read, written = (sum(count(said.get(name)) for name in names) for names in (_READ, _WRITTEN))
            if read or written:
                self._budget.count(Usage(read, written))


def _refusal(why: str) -> "Response":
    from starlette.responses import JSONResponse

    return JSONResponse({"type": "error", "error": {"type": "refused", "message": f"pkb-arena: {why}"}}, REFUSED)
