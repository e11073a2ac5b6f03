"""Access control: real requests to the real server on 127.0.0.1. Refused requests start no process."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientSession, web

from arena.cli.display import ServePlan
from screens.web.app_process import app_environment
from screens.web.server import ArenaServer


@asynccontextmanager
async def listening(plan: ServePlan) -> AsyncIterator[tuple[ArenaServer, str]]:
    """The server in this process, and its address."""
    server = ArenaServer(plan)
    runner = web.AppRunner(await server._make_app(), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield server, f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/", {}),
        ("/?token=wrong", {}),
        ("/watch?token=wrong", {}),
        ("/?token=", {}),
        ("/?token={spectator}", {}),
        ("/watch?token={owner}", {}),
        ("/static/js/textual.js", {}),
        ("/page/page.html", {}),
        ("/ws", {"Origin": "{base}"}),
        ("/watch/ws", {"Origin": "{base}"}),
        ("/?token={owner}", {"Host": "rebound.example"}),
        ("/?token={owner}", {"Host": "127.0.0.1.rebound.example:8000"}),
        ("/?token={owner}", {"Origin": "http://elsewhere.example"}),
        ("/?token={owner}", {"Origin": "null"}),
    ],
)
async def test_a_stranger_gets_403(path: str, headers: dict[str, str], visitor: ClientSession) -> None:
    async with listening(ServePlan(port=0)) as (server, base):
        words = {**server.access.tokens, "base": base}
        sent = {name: value.format(**words) for name, value in headers.items()}
        async with visitor.get(base + path.format(**words), headers=sent) as answer:
            assert answer.status == 403
            assert "set-cookie" not in answer.headers
            assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")


async def test_a_link_leaves_a_cookie_and_opens_a_page_that_asks_nobody_else(visitor: ClientSession) -> None:
    async with listening(ServePlan(port=0)) as (server, base):
        async with visitor.get(f"{base}/?token={server.access.tokens['owner']}") as answer:
            assert answer.status == 200
            cookie = answer.headers["Set-Cookie"]
            assert "HttpOnly" in cookie
            assert "SameSite=Strict" in cookie
            assert server.access.tokens["owner"] not in await answer.text()
        async with visitor.get(f"{base}/") as answer:
            assert answer.status == 200
            page = await answer.text()
        assert set(re.findall(r"\w+://[^/\"]+", page)) == {base.replace("http", "ws", 1)}
        for path in re.findall(r'(?:href|src)="(/[^"]+)"', page):
            async with visitor.get(base + path) as answer:
                assert answer.status == 200, path
        tunnelled = {"Host": "localhost:9999", "Cookie": cookie.split(";")[0]}
        async with visitor.get(f"{base}/", headers=tunnelled) as answer:
            assert "ws://localhost:9999/ws" in await answer.text()


async def test_with_a_cookie_foreign_origins_and_hosts_are_still_refused(visitor: ClientSession) -> None:
    async with listening(ServePlan(port=0)) as (server, base):
        await (await visitor.get(f"{base}/?token={server.access.tokens['owner']}")).release()
        strange: list[dict[str, str]] = [{}, {"Origin": "http://elsewhere.example"}]
        strange += [{"Origin": "http://a.example", "Host": "a.example"}]
        for headers in strange:
            async with visitor.get(f"{base}/ws", headers=headers) as answer:
                assert answer.status == 403, headers


async def test_a_spectators_cookie_opens_nothing_of_the_owners(visitor: ClientSession) -> None:
    async with listening(ServePlan(port=0)) as (server, base):
        await (await visitor.get(f"{base}/watch?token={server.access.tokens['spectator']}")).release()
        for path, status in (("/watch", 200), ("/", 403), ("/ws", 403), ("/%77s", 403), ("/watch/../ws", 403)):
            async with visitor.get(base + path, headers={"Origin": base}) as answer:
                assert answer.status == status, path


async def test_for_spectators_alone_there_is_no_owner(visitor: ClientSession) -> None:
    async with listening(ServePlan(port=0, owner=False)) as (server, base):
        async with visitor.get(f"{base}/?token={server.access.tokens['owner']}") as answer:
            assert answer.status == 403
            assert "for spectators" in await answer.text()
        async with visitor.get(f"{base}/watch?token={server.access.tokens['spectator']}") as answer:
            assert answer.status == 200


def test_an_app_in_a_browser_gets_no_keys() -> None:
    outer = {"PATH": "/bin", "OPENAI_API_KEY": "secret", "AWS_SESSION_TOKEN": "secret", "MY_KEY": "passed"}
    kept = app_environment(outer | {"PKB_ARENA_HOME": "/home"}, ("MY_KEY",))
    assert "secret" not in kept.values()
    assert (kept["PATH"], kept["PKB_ARENA_HOME"], kept["MY_KEY"]) == ("/bin", "/home", "passed")
