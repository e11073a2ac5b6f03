"""Sessions of browsers: the owner's app outlives its browser, a spectator's app ends with it."""

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
from aiohttp import ClientConnectionError, WSCloseCode, WSMsgType, web

from screens.web.app_process import AppProcess

SEND_S = 5.0
"""Seconds after which a browser that accepts no data counts as gone, so that it does not block the app."""
OWNER_LEAVES_S = 12.0
"""Seconds until the owner's app is killed; more than it needs to end its worlds."""
SPECTATOR_LEAVES_S = 2.0
SPECTATOR_MESSAGES, SPECTATOR_BYTES = 20, 64 << 10
"""Most messages and bytes of a spectator in a second, and most bytes of one message. More of them wait."""
LARGEST = (400, 200)
"""The largest terminal: columns and lines."""
MakeProcess = Callable[["Browser"], AppProcess]


def bounded(width: int, height: int) -> tuple[int, int]:
    """Limits a terminal's size to one that an app can draw."""
    return min(max(width, 2), LARGEST[0]), min(max(height, 2), LARGEST[1])


class Browser:
    """The browser's end: sends what an app writes to the socket of the tab that shows it; drops it without one."""

    socket: web.WebSocketResponse | None = None

    async def write_bytes(self, data: bytes) -> None:
        """Sends data for the terminal."""
        await self._send(lambda socket: socket.send_bytes(data))

    async def write_str(self, text: str) -> None:
        """Sends text for the page."""
        await self._send(lambda socket: socket.send_str(text))

    async def close(self) -> None:
        """Closes the socket, because the app has ended."""
        socket, self.socket = self.socket, None
        await close_socket(socket, b"the app has ended")

    async def _send(self, send: Callable[[web.WebSocketResponse], Coroutine[Any, Any, None]]) -> None:
        socket = self.socket
        if socket is None:
            return
        try:
            async with asyncio.timeout(SEND_S):
                await send(socket)
        except (TimeoutError, ClientConnectionError, ConnectionError, RuntimeError):
            if self.socket is socket:
                self.socket = None
            await close_socket(socket, b"the browser did not answer")


async def close_socket(socket: web.WebSocketResponse | None, why: bytes) -> None:
    """Closes a socket within a bounded time."""
    if socket is not None and not socket.closed:
        with suppress(TimeoutError, ClientConnectionError, ConnectionError, RuntimeError):
            async with asyncio.timeout(1.0):
                await socket.close(code=WSCloseCode.GOING_AWAY, message=why)


class OwnerSession:
    """The owner's app. The newest tab shows it; without a tab, it runs on for `keep_s` seconds."""

    def __init__(self, make: MakeProcess, keep_s: float) -> None:
        self._make, self._keep_s = make, keep_s
        self._browser = Browser()
        self._process: AppProcess | None = None
        self._lock = asyncio.Lock()
        self._leaving: asyncio.TimerHandle | None = None
        self._giving_up: asyncio.Task[None] | None = None

    async def show(self, socket: web.WebSocketResponse, width: int, height: int) -> None:
        """Gives the app to this tab until it is closed or another one takes it."""
        async with self._lock:
            if self._leaving is not None:
                self._leaving.cancel()
            before, self._browser.socket = self._browser.socket, socket
            await close_socket(before, b"another tab has the app now")
            if self._process is None or self._process.ended:
                self._browser = Browser()
                self._browser.socket = socket
                self._process = self._make(self._browser)
                await self._process.start(width, height)
            else:
                await self._process.attach(width, height)
            process, browser = self._process, self._browser
        try:
            await hand_on(socket, process)
        finally:
            if browser.socket is socket:
                browser.socket = None
                self._leaving = asyncio.get_running_loop().call_later(self._keep_s, self._give_up)

    def _give_up(self) -> None:
        self._giving_up = asyncio.create_task(self._end_unless_shown())

    async def _end_unless_shown(self) -> None:
        async with self._lock:
            if self._browser.socket is None:
                await self._end()

    async def end(self) -> None:
        """Ends the app, in order. May be called twice."""
        async with self._lock:
            await self._end()

    async def _end(self) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
        if self._process is not None:
            await self._process.end(OWNER_LEAVES_S)
            self._process = None


class Spectators:
    """A small app for each tab. These apps read journals, and change nothing."""

    def __init__(self, make: MakeProcess, most: int) -> None:
        self._make, self._most = make, most
        self._taken = 0
        self._here: set[AppProcess] = set()

    @contextmanager
    def admitted(self) -> Iterator[bool]:
        """Reserves one of the spectators' places during the block; yields False if all are taken."""
        free = self._taken < self._most
        self._taken += free
        try:
            yield free
        finally:
            self._taken -= free

    async def show(self, socket: web.WebSocketResponse, width: int, height: int) -> None:
        """Runs an app of its own for this tab until it is closed."""
        browser = Browser()
        browser.socket = socket
        process = self._make(browser)
        self._here.add(process)
        try:
            await process.start(width, height)
            await hand_on(socket, process, SPECTATOR_MESSAGES, SPECTATOR_BYTES)
        finally:
            browser.socket = None
            await process.end(SPECTATOR_LEAVES_S)
            self._here.discard(process)

    async def end(self) -> None:
        """Closes every tab's app."""
        await asyncio.gather(*(process.end(SPECTATOR_LEAVES_S) for process in list(self._here)))


async def hand_on(
    socket: web.WebSocketResponse, process: AppProcess, most: float = math.inf, most_bytes: float = math.inf
) -> None:
    """Forwards a browser's messages to the app until the socket is closed. Ignores invalid messages.

    most, most_bytes: messages and bytes to read in a second. The rest waits in the browser.
    """
    loop = asyncio.get_running_loop()
    second, messages, size = loop.time(), 0, 0
    async for message in socket:
        if loop.time() - second >= 1:
            second, messages, size = loop.time(), 0, 0
        if message.type is WSMsgType.ERROR:  # its data is the error, such as a ping that was not answered
            return
        messages, size = messages + 1, size + len(message.data)
        if message.type is WSMsgType.PING:
            await socket.pong(message.data)
        elif message.type is WSMsgType.TEXT:
            await _hand_on(socket, process, message.data)
        if messages >= most or size >= most_bytes:
            await asyncio.sleep(second + 1 - loop.time())


async def _hand_on(socket: web.WebSocketResponse, process: AppProcess, text: str) -> None:
    with suppress(ValueError, LookupError, RecursionError):
        kind, *rest = msgspec.json.decode(text, type=list[Any])
        if kind == "stdin":
            await process.send_bytes(msgspec.convert(rest[0], str).encode("utf-8", "replace"))
        elif kind == "resize":
            size = msgspec.convert(rest[0], dict[str, int])
            await process.set_terminal_size(*bounded(size["width"], size["height"]))
        elif kind == "ping":
            await socket.send_json(["pong", rest[0] if rest else None])
