"""Access control: real requests to the real server on 127.0.0.1. Refused requests start no process."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import psutil
import pytest
from aiohttp import ClientSession, WSMessage, WSMsgType
from waiting import PATIENCE_S

from arena.cli.display import ServePlan
from screens.web.access import MOST_STRANGERS
from screens.web.app_process import app_environment
from screens.web.server import ArenaServer, ShortLog
from screens.web.sessions import hand_on

UPGRADE = (b"Upgrade: websocket", b"Connection: Upgrade", b"Sec-WebSocket-Version: 13")


@asynccontextmanager
async def listening(plan: ServePlan) -> AsyncIterator[tuple[ArenaServer, str]]:
    """The server in this process, and its address."""
    server = ArenaServer(plan)
    async with server.listening() as port:
        yield server, f"http://127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/ws", {}),
        ("/watch/ws", {}),
        ("/ws", {"Origin": "http://elsewhere.example"}),
        ("/", {"Host": "rebound.example"}),
        ("/", {"Host": "127.0.0.1.rebound.example:8000"}),
        ("/", {"Host": "[127.0.0.1]evil"}),
        ("/", {"Host": "[127.0.0.1]:8000"}),
        ("/", {"Origin": "http://elsewhere.example"}),
        ("/", {"Origin": "null"}),
        ("/ws", {"Host": "a.example", "Origin": "http://a.example"}),
    ],
)
async def test_foreign_requests_get_403(path: str, headers: dict[str, str], visitor: ClientSession) -> None:
    async with listening(ServePlan(port=0)) as (_, base), visitor.get(base + path, headers=headers) as answer:
        assert answer.status == 403
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")


def test_apps_of_spectators_get_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("screens.web.server.AppProcess", lambda command, **given: given)
    server, browser = (
        ArenaServer(ServePlan(passed_on=("MY_KEY",))),
        SimpleNamespace(write_bytes=0, write_str=0, close=0),
    )
    for role, passed_on, nice in (("owner", ("MY_KEY",), 0), ("spectator", (), 19)):
        given = server._process(role, browser)
        assert (given["passed_on"], given["nice"], given["close"]) == (passed_on, nice, 0)


@pytest.mark.parametrize("header", [b"Sec-WebSocket-Key: \xff", b"Range: bytes=\xff", b"If-None-Match: \xc3\xa9"])
async def test_headers_beyond_ascii_get_403(header: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with listening(ServePlan(port=0)) as (_, base):
        host, port = base.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = [f"GET /ws HTTP/1.1\r\nHost: {host}:{port}\r\nOrigin: {base}".encode(), header, *UPGRADE]
        writer.write(b"\r\n".join(head) + b"\r\n\r\n")
        assert b" 403 " in await reader.readline()
        writer.close()
    assert not caplog.records


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/ws", ""),
        ("/ws", '["token", "wrong"]'),
        ("/ws", '["token", "{spectator}"]'),
        ("/watch/ws", '["token", "{owner}"]'),
        ("/ws", '["stdin", "{owner}"]'),
        ("/ws", "[" * 100_000),
        ("/%77s", '["token", "{spectator}"]'),
    ],
)
async def test_without_its_token_a_socket_starts_nothing(path: str, message: str, visitor: ClientSession) -> None:
    before = psutil.Process().children()
    async with listening(ServePlan(port=0)) as (server, base):
        async with visitor.ws_connect(base + path, headers={"Origin": base}) as socket:
            for role, token in server.access.tokens.items():
                message = message.replace(f"{{{role}}}", token)
            await socket.send_str(message)
            closed = await socket.receive()
            assert "no access" in str(closed.extra)
        assert psutil.Process().children() == before


async def test_page_holds_no_secret_and_asks_nobody_else(visitor: ClientSession) -> None:
    async with listening(ServePlan(port=0)) as (server, base):
        for place in ("/", "/watch"):
            async with visitor.get(base + place) as answer:
                assert answer.status == 200
                assert "Set-Cookie" not in answer.headers
                page = await answer.text()
            assert not [token for token in server.access.tokens.values() if token in page]
            assert set(re.findall(r"\w+://[^/\"]+", page)) == {base.replace("http", "ws", 1)}
            for path in re.findall(r'(?:href|src)="(/[^"]+)"', page):
                async with visitor.get(base + path) as answer:
                    assert answer.status == 200, path
        async with visitor.get(f"{base}/", headers={"Host": "localhost:9999"}) as answer:
            assert "ws://localhost:9999/ws" in await answer.text()


async def test_for_spectators_alone_there_is_no_owner(visitor: ClientSession) -> None:
    async with listening(ServePlan(port=0, owner=False)) as (_, base):
        async with visitor.get(f"{base}/") as answer:
            assert answer.status == 403
            assert "for spectators" in await answer.text()
        async with visitor.get(f"{base}/watch") as answer:
            assert answer.status == 200


@pytest.mark.parametrize(("head_s", "connections"), [(PATIENCE_S, 3 * MOST_STRANGERS), (0.1, 1)])
async def test_half_open_connections_are_bounded_and_end(
    visitor: ClientSession, monkeypatch: pytest.MonkeyPatch, head_s: float, connections: int
) -> None:
    monkeypatch.setattr("screens.web.server.HEAD_S", head_s)
    async with listening(ServePlan(port=0)) as (_, base):
        host, port = base.removeprefix("http://").split(":")
        opened = [await asyncio.open_connection(host, int(port)) for _ in range(connections)]
        for _, writer in opened:
            writer.write(b"GET / HTTP/1.1\r\n")
        if kept := max(0, connections - 2 * MOST_STRANGERS):
            async with visitor.get(base) as answer:
                assert answer.status == 200
            held = [each for each in psutil.Process().net_connections() if each.laddr.port == int(port) and each.raddr]
            assert len(held) <= MOST_STRANGERS
        async with asyncio.timeout(PATIENCE_S):
            ended = (reader.read() for reader, _ in opened[: len(opened) - kept])
            await asyncio.gather(*ended, return_exceptions=True)
        for _, writer in opened:
            writer.close()


def test_the_log_of_connections_is_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.Logger("connections")
    log.addHandler(ShortLog())
    for _ in range(10_000):
        log.error("x" * 10_000)
    assert len(capsys.readouterr().err) < 100_000


async def test_a_spectators_flood_waits() -> None:
    loop, read = asyncio.get_running_loop(), list[int]()

    async def flood() -> AsyncIterator[WSMessage]:
        while True:
            read.append(1)
            await asyncio.sleep(0)
            yield WSMessage(WSMsgType.TEXT, '["stdin", "x"]', "")

    deaf = SimpleNamespace(send_bytes=lambda keys: asyncio.sleep(0))
    begun = loop.time()
    handed_on = asyncio.create_task(hand_on(flood(), deaf, most=20))  # type: ignore[arg-type]
    await asyncio.sleep(1.5)
    handed_on.cancel()
    assert 1 < len(read) <= 20 * (loop.time() - begun + 1)


def test_an_app_in_a_browser_gets_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    outer = {"NCCL_ALGO": "Ring", "OPENAI_API_KEY": "secret", "AWS_SESSION_TOKEN": "secret", "MY_KEY": "passed"}
    monkeypatch.setattr("os.environ", outer)
    kept = app_environment(("MY_KEY",))
    assert "secret" not in kept.values()
    assert (kept["NCCL_ALGO"], kept["MY_KEY"]) == ("Ring", "passed")
