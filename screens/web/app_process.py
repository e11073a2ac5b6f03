"""An app as a separate process, with pipes as its terminal."""

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from textual_serve.app_service import AppService

from arena.paths import ROOT, module_environment
from screens.web.owner import DRIVER

READY = b"__GANGLION__\n"
"""The first line that a Textual app writes."""
STDERR_BYTES = 16 << 10
PACKET_BYTES = 16 << 20
FRAMES_A_SECOND = "20"
HAND_OVER_S = 1.0
"""Seconds to wait after SIGKILL; a process that is blocked in a device may not end."""


def app_environment(passed_on: Sequence[str], width: int = 80, height: int = 24) -> dict[str, str]:
    """Returns the environment of an app in a browser: that of every process of the arena, and what is passed on by name.

    API keys are left out unless they are passed on.
    """
    kept = module_environment() | {name: os.environ[name] for name in passed_on if name in os.environ}
    for name in ("LINES", "NO_COLOR"):  # of the server's own terminal
        kept.pop(name, None)
    return kept | {
        "TEXTUAL_DRIVER": DRIVER,
        "TEXTUAL_FPS": FRAMES_A_SECOND,
        "TEXTUAL_COLOR_SYSTEM": "truecolor",
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "COLUMNS": str(width),
        "ROWS": str(height),
    }


class AppProcess(AppService):
    """Textual-serve's end of the pipes. The process has a process group of its own, which `end` stops."""

    def __init__(self, command: Sequence[str], passed_on: Sequence[str] = (), nice: int = 0, **ends: Any) -> None:
        """nice: its priority. ends: the callbacks of the browser's end, as textual-serve takes them."""
        super().__init__(" ".join(command), **ends)
        self._command, self._passed_on, self._nice = command, passed_on, nice
        self._errors = bytearray()

    @property
    def ended(self) -> bool:
        """Whether it was started, and its pipes are closed."""
        return self._task is not None and self._task.done()

    async def _open_app_process(self, width: int = 80, height: int = 24) -> asyncio.subprocess.Process:
        self._process = process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=ROOT,
            env=app_environment(self._passed_on, width, height),
            start_new_session=True,  # ctrl+c reaches only the server, which ends its apps in order
        )
        if self._nice:
            with suppress(OSError):  # it has ended
                os.setpriority(os.PRIO_PROCESS, process.pid, self._nice)
        assert process.stdin is not None
        self._stdin = process.stdin
        return process

    async def attach(self, width: int, height: int) -> None:
        """Makes the app draw everything anew, for an empty terminal of this size."""
        await self.send_meta({"type": "attach", "width": width, "height": height})

    async def run(self) -> None:
        """Forwards packets until the process closes its end. Then the browser shows its error output, if any."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        reading = asyncio.create_task(self._read_errors())
        try:
            ready = await process.stdout.readline() == READY
            while ready:
                kind = await process.stdout.readexactly(1)
                size = int.from_bytes(await process.stdout.readexactly(4), "big")
                if size > PACKET_BYTES:
                    break  # something else writes into the pipe
                payload = await process.stdout.readexactly(size)
                if kind == b"D":
                    await self.on_data(payload)
                elif kind == b"M":
                    await self.on_meta(payload)
                elif kind == b"P":
                    await self.on_packed(payload)
            if not ready:
                await process.wait()
        except (asyncio.IncompleteReadError, ConnectionResetError, ValueError):
            pass
        finally:
            with suppress(TimeoutError, asyncio.CancelledError):
                await asyncio.wait_for(reading, HAND_OVER_S)
            if self._errors:
                text = self._errors.decode("utf-8", "replace").replace("\n", "\r\n")
                await self.on_data(f"\x1b[?1049l\x1b[2J\x1b[H\x1b[0m{text}".encode())
            await self.remote_close()

    async def _read_errors(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(4096):
            self._errors += data
            del self._errors[:-STDERR_BYTES]

    async def end(self, patience_s: float) -> None:
        """Asks the app to quit; kills its process group after `patience_s` seconds. May be called twice."""
        process, task = self._process, self._task
        if process is None or task is None:
            return
        await self._download_manager.cancel_app_downloads(app_service_id=self.app_service_id)
        if process.returncode is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self.send_meta({"type": "quit"})
                    await process.wait()
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), HAND_OVER_S)
        with suppress(TimeoutError, asyncio.CancelledError):
            await asyncio.wait_for(task, 2 * HAND_OVER_S)
