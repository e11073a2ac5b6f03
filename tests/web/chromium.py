"""A headless Chromium, driven over its DevTools protocol."""

import asyncio
import base64
import itertools
import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from waiting import PATIENCE_S

KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "s": (83, ""), "F5": (116, "")}
"""DevTools' name of a key: its code, and the text that it types."""


class Tab:
    """A page, with its requests and its errors."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reading = asyncio.create_task(self._read())
        self.requests: list[str] = []
        """Requested addresses, including those of websockets."""
        self.errors: list[str] = []
        """Exceptions in the page's scripts."""

    async def _read(self) -> None:
        async for message in self._socket:
            said = message.json()
            if "id" in said:
                self._answers.pop(said["id"]).set_result(said)
            elif said["method"] == "Network.requestWillBeSent":
                self.requests.append(said["params"]["request"]["url"])
            elif said["method"] == "Network.webSocketCreated":
                self.requests.append(said["params"]["url"])
            elif said["method"] == "Runtime.exceptionThrown":
                self.errors.append(str(said["params"]["exceptionDetails"]))

    async def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._answers[number] = answer = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": arguments})
        said = await asyncio.wait_for(answer, PATIENCE_S)
        assert "error" not in said, f"{method}: {said['error']}"
        return dict(said["result"])

    async def value(self, expression: str) -> Any:
        """Evaluates a JavaScript expression in the page as it is now."""
        result = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return result["result"].get("value")

    async def open(self, address: str, width: int, height: int) -> None:
        for domain in ("Page", "Network", "Runtime"):
            await self.call(f"{domain}.enable")
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        await self.call("Page.bringToFront")
        await self.call("Page.navigate", url=address)

    async def draws(self) -> None:
        """Waits until the app has drawn something."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while not await self.value("document.body?.classList.contains('-first-byte') ?? false"):
            assert asyncio.get_running_loop().time() < deadline, f"nothing was drawn; {self.errors}"
            await asyncio.sleep(0.1)

    async def type(self, text: str) -> None:
        await self.call("Input.insertText", text=text)

    async def press(self, key: str, *, ctrl: bool = False) -> None:
        code, text = KEYS[key]
        for kind in ("keyDown" if text else "rawKeyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=f"Key{key.upper()}" if len(key) == 1 else key,
                windowsVirtualKeyCode=code,
                modifiers=2 if ctrl else 0,
                text=text if kind == "keyDown" else "",
            )

    async def picture(self) -> bytes:
        """A screenshot of the tab, as PNG."""
        return base64.b64decode((await self.call("Page.captureScreenshot", format="png"))["data"])

    async def close(self) -> None:
        await self.call("Page.close")
        await self._socket.close()
        await self._reading


class Chromium:
    """A browser with a profile of its own."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self._session, self._port = session, port

    async def tab(self, address: str, width: int = 1200, height: int = 720) -> Tab:
        """Opens a new tab that loads an address."""
        async with self._session.put(f"http://127.0.0.1:{self._port}/json/new?about:blank") as response:
            target = await response.json()
        tab = Tab(await self._session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=1 << 26))
        await tab.open(address, width, height)
        return tab


@asynccontextmanager
async def started(program: str, folder: Path) -> AsyncIterator[Chromium]:
    """A running browser until the end of the block. Its profile is in `folder`."""
    arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    arguments += ["--disable-background-networking", "--remote-debugging-port=0", f"--user-data-dir={folder}"]
    process = subprocess.Popen(
        [program, *arguments, "about:blank"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        port_file = folder / "DevToolsActivePort"
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while not (port_file.exists() and (found := re.match(r"(\d+)\n", port_file.read_text()))):
            assert process.poll() is None, "Chromium ended"
            assert asyncio.get_running_loop().time() < deadline, "Chromium did not start"
            await asyncio.sleep(0.1)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(PATIENCE_S)) as session:
            yield Chromium(session, int(found[1]))
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
