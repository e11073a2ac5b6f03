"""The socket to a program's tools: a program cannot fill the arena's memory through it, and breaking off is silent."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from waiting import comes_true

from arena.models.conversation import Tool, ToolResult
from arena.players.program import jailed, mcp_server

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
        for writer, message, size in ((calling, CALL, 50_000), (asking, asked, 500)):
            writer.write(line(INITIALIZE) + line({"method": "notifications/initialized"}))
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
