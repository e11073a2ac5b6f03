"""Starts servers as `pkb-arena serve` does."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyte
import pytest
from aiohttp import ClientSession, ClientTimeout
from waiting import PATIENCE_S, comes_true

from sandbox.machine.processes import runs

HERE = Path(__file__).parent
LINES, COLUMNS = 40, 120


@dataclass
class Served:
    """A running server."""

    process: psutil.Process
    links: list[str]

    def apps(self, module: str) -> list[psutil.Process]:
        """Its app processes of one kind: `owner` or `spectator`."""
        return [child for child in self.process.children() if f"screens.web.{module}" in _arguments(child)]


def _arguments(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:  # it has ended, or is a zombie
        return []


class Tab:
    """A browser's tab without a browser: a websocket, and a terminal."""

    def __init__(self, socket: Any) -> None:
        self.socket = socket
        self._screen = pyte.Screen(COLUMNS, LINES)
        self._stream = pyte.ByteStream(self._screen)

    @property
    def picture(self) -> str:
        return "\n".join(self._screen.display)

    async def shows(self, text: str) -> None:
        """Reads what the app draws until `text` is on the screen."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while text not in self.picture:
                    self._stream.feed(await self.socket.receive_bytes())
        except TimeoutError:
            raise AssertionError(f"{text!r} never stood there:\n{self.picture}") from None

    async def press(self, keys: str) -> None:
        await self.socket.send_json(["stdin", keys])


@pytest.fixture
def wait_until() -> Callable[[Callable[[], object]], Awaitable[None]]:
    return comes_true


@pytest.fixture
def serve() -> Callable[..., Any]:
    """`async with serve(*arguments) as served`: the real command as a process; it must leave no process running."""

    @asynccontextmanager
    async def served(*arguments: str) -> AsyncIterator[Served]:
        command = [sys.executable, "-P", "-m", "screens.main", "serve", "--port", "0", *arguments]
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
        )
        family: list[psutil.Process] = []
        try:
            links = []
            async with asyncio.timeout(PATIENCE_S):
                while line := (await process.stdout.readline()).decode():
                    links += [word for word in line.split() if word.startswith("http://")]
                    if "ctrl+c" in line:
                        break
            yield Served(psutil.Process(process.pid), links)
            family = psutil.Process(process.pid).children(recursive=True)
            process.terminate()
            async with asyncio.timeout(PATIENCE_S):
                assert await process.wait() == 128 + 15
            await comes_true(lambda: not any(runs(each.pid) for each in family))
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    return served


@pytest.fixture
async def visitor() -> AsyncIterator[ClientSession]:
    """A browser's requests."""
    async with ClientSession(timeout=ClientTimeout(PATIENCE_S)) as session:
        yield session


@pytest.fixture
def open_tab(visitor: ClientSession) -> Callable[..., Any]:
    """`async with open_tab(link) as tab`: opens a link's page and its websocket, and sends its token."""

    @asynccontextmanager
    async def opened(link: str) -> AsyncIterator[Tab]:
        page, _, token = link.partition("#token=")
        async with visitor.get(page) as answer:
            assert answer.status == 200
        origin = "/".join(page.split("/")[:3])
        address = f"{page.rstrip('/')}/ws?width={COLUMNS}&height={LINES}"
        async with visitor.ws_connect(address, headers={"Origin": origin}) as socket:
            await socket.send_json(["token", token])
            yield Tab(socket)

    return opened
