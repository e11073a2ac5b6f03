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
from arena.models.connection.keys import Key, find_key
from arena.models.connection.network import base_url, is_local, open_client
from arena.models.connection.provider import ErrorEvent, Reader
from arena.models.conversation import Conversation
from arena.models.providers import find_provider
from arena.players.program.bridge import CONNECTIONS
from arena.players.program.passing import HiddenKey, Unasked, passed_on, without_key
from arena.settings import ModelSettings

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

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
            UsageError: there is no such provider, or no key where one is needed.
        """
        self._model, self._budget, self._path = model, budget, path
        self._provider = find_provider(model.provider)
        self._base = base_url(self._provider, model)
        here = is_local(self._base) and not model.key_env
        self._key = Key("") if here else find_key(model.key_env or self._provider.key_env, required=True)
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
