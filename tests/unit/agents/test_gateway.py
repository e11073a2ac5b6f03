"""The two sockets of an agent program: what passes the gateway and the tools, what it costs, and the limits."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from model_server import KEY, ModelServer, call_events, dripping, events, raw, send_in_chunks, status, streamed
from waiting import PATIENCE_S, comes_true

from arena.models.budget import Budget, Spent
from arena.models.conversation import Tool, ToolResult
from arena.players.program import gateway, jailed, mcp_server
from arena.players.program.gateway import Gateway
from arena.settings import ModelSettings

PATHS = {
    "anthropic": "/v1/messages",
    "openai_chat": "/chat/completions",
    "openai_responses": "/responses",
    "gemini": "/models/dear:streamGenerateContent",
}
MESSAGES = [{"role": "user", "content": "Hello"}]


class Asking:
    """A program's client of a gateway to the scripted server."""

    def __init__(self, server: ModelServer, folder: Path, provider: str, **more: Any) -> None:
        self.provider = provider
        model = more | {"model": "cheap", "base_url": server.url, "key_env": "TEST_KEY", "max_tokens": 1000}
        self.budget = Budget(ModelSettings(provider=provider, price_in=1.0, price_out=1.0, **model))  # type: ignore[arg-type]
        self.exceeded: list[str] = []
        self.told: list[str] = []
        self.path = folder / "model.sock"
        self.gateway = Gateway(self.budget._model, self.budget, self.path, self.exceeded.append, self.told.append)

    async def ask(self, body: dict[str, Any], path: str = "", whole: bool = True, **headers: str) -> httpx.Response:
        """whole: read the answer to its end, not only its first bytes."""
        transport = httpx.AsyncHTTPTransport(uds=str(self.path))
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://gateway", timeout=PATIENCE_S) as client,
            client.stream("POST", path or PATHS[self.provider], json=body, headers=headers) as answer,
        ):
            await (answer.aread() if whole else anext(answer.aiter_raw()))
            return answer


@contextlib.asynccontextmanager
async def asking(server: ModelServer, folder: Path, provider: str, **more: Any) -> AsyncIterator[Asking]:
    client = Asking(server, folder, provider, **more)
    async with client.gateway:
        yield client


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)


async def test_answers_and_counts_of_tokens_pass(model_server: ModelServer, tmp_path: Path) -> None:
    model_server.replies = [status("200 OK", '{"input_tokens": 9}'), status("402 Payment Required"), streamed("hello")]
    below = ["batches", "batches/1/cancel", "count_tokens/", "../files", "x/count_tokens"]
    paths = [f"/v1/messages/{path}" for path in (*below, "count_tokens")] + ["/v1/messages"] * 2
    async with asking(model_server, tmp_path, "anthropic") as program:
        answers = [(await program.ask({"model": "dear"}, path)).status_code for path in paths[:-1]]
        assert program.budget.spent == Spent()
        answers.append((await program.ask({"model": "dear"}, paths[-1])).status_code)
        assert (program.budget.spent.read, program.budget.spent.written) == (100, 50)
    assert answers == [403] * len(below) + [200, 402, 200]
    assert [seen.path for seen in model_server.seen] == paths[-3:]


@pytest.mark.parametrize("action", ["streamGenerateContent", "generateContent", "countTokens"])
async def test_model_in_a_path_is_replaced(model_server: ModelServer, tmp_path: Path, action: str) -> None:
    model_server.replies = [streamed("hello")]
    async with asking(model_server, tmp_path, "gemini") as program:
        assert (await program.ask({"contents": []}, f"/models/dear:{action}")).status_code == 200
        assert (await program.ask({"contents": []}, "/models/dear:embedContent")).status_code == 403
    (seen,) = model_server.seen
    assert seen.path.startswith(f"/models/cheap:{action}")


DEAR = {
    "openai_responses": {
        "input": MESSAGES,
        "background": True,
        "service_tier": "priority",
        "store": True,
        "previous_response_id": "r",
        "tools": [{"type": "web_search"}, {"type": "mcp", "server_url": "http://x"}, {"type": "function", "name": "f"}],
    },
    "openai_chat": {
        "messages": MESSAGES,
        "n": 128,
        "models": ["dearer"],
        "web_search_options": {},
        "store": True,
        "stream": True,
        "tools": [{"type": "function", "function": {"name": "f"}}, {"type": "openrouter:web"}],
    },
    "anthropic": {
        "messages": MESSAGES,
        "mcp_servers": [{"url": "http://x"}],
        "container": "c",
        "service_tier": "auto",
        "tools": [{"type": "web_search_20250305", "name": "web_search"}, {"name": "f", "input_schema": {}}],
    },
    "gemini": {
        "contents": [],
        "cachedContent": "c",
        "tools": [{"googleSearch": {}}, {"urlContext": {}, "functionDeclarations": [{"name": "f"}]}],
        "generationConfig": {"candidateCount": 8, "temperature": 1},
    },
}


@pytest.mark.parametrize("provider", DEAR)
async def test_only_function_tools_and_known_fields_pass(
    model_server: ModelServer, tmp_path: Path, provider: str
) -> None:
    model_server.replies = [streamed("hello")]
    beta = {"anthropic-beta": "mcp-client-2025-04-04", "openai-beta": "x", "anthropic-version": "2023-06-01"}
    async with asking(model_server, tmp_path, provider) as program:
        await program.ask(DEAR[provider] | {"model": "dear"}, **beta)
        assert program.told[0].startswith("[the gateway left out: ")
    (seen,) = model_server.seen
    assert seen.body["model"] == "cheap"
    assert not any("beta" in name for name in seen.headers)
    limits = {"max_tokens": 1000, "max_output_tokens": 1000, "stream_options": {"include_usage": True}, "store": False}
    allowed = {"messages", "input", "contents", "tools", "generationConfig", "stream", "model", *limits}
    assert seen.body.keys() <= allowed
    assert all(seen.body[name] == value for name, value in limits.items() if name in seen.body)
    assert seen.body.get("generationConfig", {"maxOutputTokens": 1000, "temperature": 1}) == {
        "maxOutputTokens": 1000,
        "temperature": 1,
    }
    (tool,) = seen.body["tools"]
    assert '"f"' in json.dumps(tool)
    assert tool.keys() <= {"type", "name", "function", "input_schema", "functionDeclarations"}


async def test_fields_of_the_model_table_are_asked_for(model_server: ModelServer, tmp_path: Path) -> None:
    model_server.replies = [streamed("hello")]
    async with asking(model_server, tmp_path, "openai_chat", extra={"service_tier": "flex"}) as program:
        await program.ask({"messages": MESSAGES, "service_tier": "priority"})
    assert model_server.seen[0].body["service_tier"] == "flex"


@pytest.mark.parametrize(
    ("provider", "body"),
    [
        ("anthropic", {"messages": [{"content": [{"type": "image", "source": {"type": "url", "url": "http://x"}}]}]}),
        ("openai_chat", {"messages": [{"content": [{"image_url": {"url": "http://x"}}]}]}),
        ("openai_responses", {"input": [{"content": [{"type": "input_file", "file_url": "http://x"}]}]}),
        ("gemini", {"contents": [{"parts": [{"fileData": {"fileUri": "http://x"}}]}]}),
    ],
)
async def test_no_address_is_fetched_for_a_program(
    model_server: ModelServer, tmp_path: Path, provider: str, body: dict[str, Any]
) -> None:
    async with asking(model_server, tmp_path, provider) as program:
        answer = await program.ask(body)
    assert answer.status_code == 403
    assert "fetch an address" in answer.text
    assert model_server.seen == []


@pytest.mark.parametrize("reply", [raw(b'{"id": 1, "status": "queued"}', "application/json"), raw(b"data: {}\n\n")])
async def test_answer_without_usage_costs_its_maximum(model_server: ModelServer, tmp_path: Path, reply: Any) -> None:
    model_server.replies = [reply]
    async with asking(model_server, tmp_path, "openai_responses") as program:
        await program.ask({"input": MESSAGES})
        await program.ask({"input": MESSAGES, "max_output_tokens": 77})
        assert (program.budget.spent.written, program.budget.spent.estimated) == (1077, True)


@pytest.mark.parametrize("provider", PATHS)
async def test_echoed_key_is_hidden_across_events(
    model_server: ModelServer, tmp_path: Path, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("model_server.PIECE", 5)
    for size in (1, 1 << 16):
        for text in (f"The key is {KEY}, and it ends with {KEY[:9]}", KEY):
            answer = (
                events(provider, text) if text != KEY else call_events(provider, KEY, [("run", f'{{"a": "{KEY}"}}')], 3)
            )

            def reply(line: Any, seen: Any, answer: bytes = answer, size: int = size) -> None:
                line.head(Transfer_Encoding="chunked")
                send_in_chunks(line, answer, lambda: size)
                line.end()

            model_server.replies = [reply]
            folder = tmp_path / f"{size}-{len(text)}"
            folder.mkdir()
            async with asking(model_server, folder, provider) as program:
                got = (
                    await program.ask({"messages": MESSAGES, "input": MESSAGES, "contents": [], "stream": True})
                ).text
                reader = program.gateway._provider.reader()
                said = "".join(
                    str(getattr(piece, "text", getattr(piece, "arguments", "")))
                    for line in got.splitlines()
                    if line.startswith("data: ")
                    for piece in reader("", line.removeprefix("data: "))
                )
                assert KEY not in said
                assert "[key]" in said
                if text != KEY:
                    assert said == f"The key is [key], and it ends with {KEY[:9]}"
                assert program.budget.spent.written == 50


async def test_escaped_key_in_a_whole_answer_is_hidden(model_server: ModelServer, tmp_path: Path) -> None:
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in KEY)
    model_server.replies = [status("400 Bad Request", f'{{"error": "{escaped}"}}')]
    async with asking(model_server, tmp_path, "openai_chat") as program:
        assert (await program.ask({"messages": MESSAGES})).json() == {"error": "[key]"}


async def test_limits_of_requests_end_the_program(
    model_server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gateway, "REQUEST_BYTES", 1 << 20)
    head = b"POST /chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\n"
    async with asking(model_server, tmp_path, "openai_chat") as program, contextlib.AsyncExitStack() as stack:
        assert (await program.ask({"messages": "x" * (2 << 20)})).status_code == 403
        assert program.exceeded.pop() == "memory: a request to its model has more than 1 MiB"

        for _ in range(10):  # a program that breaks off is no error
            _, writer = await asyncio.open_unix_connection(str(program.path))
            writer.write(head)
            await writer.drain()
            await asyncio.sleep(0.01)
            writer.transport.abort()
        monkeypatch.setattr(gateway, "DEADLINE_S", 0.2)
        ends = [await asyncio.open_unix_connection(str(program.path))]
        ends[0][1].write(head)
        ends += [await asyncio.open_unix_connection(str(program.path)) for _ in range(gateway.CONNECTIONS - 1)]
        for _, writer in ends:
            stack.callback(writer.close)
        await comes_true(lambda: program.exceeded)
        assert program.exceeded.pop() == "time: the body of a request took more than 0.2 s"
        for reader, _ in ends[1:]:
            assert await reader.read() == b""  # nothing was asked in time
        monkeypatch.setattr(gateway, "DEADLINE_S", PATIENCE_S)
        ends += [await asyncio.open_unix_connection(str(program.path)) for _ in range(3 * gateway.CONNECTIONS)]
        await comes_true(lambda: program.exceeded)
        assert program.exceeded[0] == "connections: it opened more than 8 to its model at once"
        for _, writer in ends:
            writer.close()
    assert capfd.readouterr().err == ""


async def test_program_that_breaks_off_pays_and_continues(model_server: ModelServer, tmp_path: Path) -> None:
    model_server.replies = [dripping(b"data: {}\n\n"), streamed("hello")]
    async with asking(model_server, tmp_path, "openai_chat") as program:
        for whole in (False, True):
            await program.ask({"messages": MESSAGES, "stream": True}, whole=whole)
        assert program.budget.spent.written == 1000 + 50


INITIALIZE = {
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
CALL = {"id": 2, "method": "tools/call", "params": {"name": "run", "arguments": {}}}


class BlockedTools:
    """Tools whose calls do not return."""

    tools = (Tool("run", "", {"type": "object"}),)

    def __init__(self) -> None:
        self.calls = 0

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        self.calls += 1
        await asyncio.sleep(600)
        raise AssertionError


@contextlib.asynccontextmanager
async def served(folder: Path) -> AsyncIterator[tuple[BlockedTools, Any, list[str]]]:
    """Yields the tools, a function that opens a connection to them, and the limits that were broken."""
    exceeded: list[str] = []
    tools = BlockedTools()
    async with jailed._tool_socket(tools, folder / "s", exceeded.append), contextlib.AsyncExitStack() as stack:

        async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_unix_connection(str(folder / "s"))
            stack.callback(writer.close)
            return reader, writer

        yield tools, connect, exceeded


def line(message: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n"


async def test_fifth_connection_breaks_a_limit(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, connect, exceeded):
        for _ in range(4):
            reader, writer = await connect()
            writer.write(line(INITIALIZE))
            assert b"serverInfo" in await reader.readline()
        assert exceeded == []
        await connect()
        await comes_true(lambda: exceeded)
        assert exceeded == ["connections: it opened more than 4 to its tools at once"]


async def test_message_without_end_breaks_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(tmp_path) as (_, connect, exceeded):
        reader, writer = await connect()
        with contextlib.suppress(ConnectionError):
            for _ in range(1000):
                writer.write(b"x" * (1 << 20))
                await writer.drain()
        assert exceeded == ["memory: a message to its tools has more than 1 MiB"]
        monkeypatch.setattr(mcp_server, "MESSAGE_S", 0.1)
        reader, writer = await connect()
        writer.write(b"x")
        assert await reader.read() == b""
        assert exceeded[1:] == ["time: a message to its tools took more than 0.1 s"]


async def test_messages_wait_while_calls_are_open(tmp_path: Path) -> None:
    """Otherwise a program could send calls, or requests without reading the answers, until memory is full."""
    async with served(tmp_path) as (tools, connect, exceeded):
        _, calling = await connect()
        _, asking = await connect()
        asked = {"id": 3, "method": "tools/list"}
        few = mcp_server.OPEN_CALLS
        for writer, message, size in ((calling, CALL, 50_000), (asking, asked, 500)):
            writer.write(line(INITIALIZE) + line({"method": "notifications/initialized"}) + few * line(message))
            await comes_true(lambda: tools.calls == few)
            sent = 0
            with contextlib.suppress(TimeoutError):
                while sent < 16 << 20:
                    writer.write(line(message | {"x": "y" * size}))
                    async with asyncio.timeout(0.5):
                        await writer.drain()
                    sent += size
            assert sent < 16 << 20
        assert tools.calls == mcp_server.OPEN_CALLS
        assert exceeded == []


async def test_broken_connections_print_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with served(tmp_path) as (tools, connect, exceeded):
        for number in range(60):
            _, writer = await connect()
            writer.write(line(INITIALIZE) + b"no JSON\n\xff\n[" + line(CALL))
            writer.write(line({"method": "notifications/initialized"}) + line(CALL) + line({"id": None}) + b'{"id"')
            await comes_true(lambda number=number: tools.calls > number)
            writer.transport.abort()
            await comes_true(lambda: len(asyncio.all_tasks()) < 10)
        assert exceeded == []
    assert capfd.readouterr().err == ""
