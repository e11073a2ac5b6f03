"""The referee as the engine sees it: a child process with commands on stdin and events on stdout."""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from arena.errors import RefereeFailed
from arena.paths import ROOT, module_command, module_environment
from sandbox.machine.locked_folder import remove_all_leftovers
from sandbox.protocol.events import VERSION, AnyCommand, AnyEvent, Ready, decode_event, encode

COMMAND = module_command("sandbox.referee.main")
START_S = 30.0
"""Longest time until `Ready`. The referee imports no torch, so even a busy machine needs far less."""
SHUTDOWN_S = 3.0
"""Longest time for an orderly end; then the referee is killed."""
ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}
"""Otherwise NumPy starts threads that poll for work on the cores of the timed ranks."""
KILL_S = 5.0
"""Longest wait after SIGKILL: a process stuck in a device call may not end, and must not hang the app."""
LINE_BYTES = 64 << 20
STDERR_BYTES = 64 << 10
OnExit = Callable[["RefereeProcess", str], None]
"""Called with the referee and how it ended, in words. The call may come after a new referee has started."""


class RefereeProcess:
    """One running referee. `on_event` gets every event; `on_exit` is called once at its end, if it was ever ready."""

    def __init__(self, on_event: Callable[[AnyEvent], None], on_exit: OnExit) -> None:
        self._on_event = on_event
        self._on_exit = on_exit
        self._process: asyncio.subprocess.Process
        self._ready: asyncio.Future[Ready]
        self._stderr = bytearray()
        self._reader: asyncio.Task[None]
        self.alive = True

    @classmethod
    async def start(
        cls,
        on_event: Callable[[AnyEvent], None],
        on_exit: OnExit,
        command: Sequence[str],
        environment: Mapping[str, str],
    ) -> "RefereeProcess":
        """Starts a referee and waits until it is ready.

        Raises:
            RefereeFailed: it did not start; the message says why.
        """
        self = cls(on_event, on_exit)
        self._ready = asyncio.get_running_loop().create_future()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=ROOT,
                env={**module_environment(), **ENVIRONMENT, **environment},
                start_new_session=True,  # ctrl+c reaches only the engine, which ends runs in order
            )
        except OSError as error:
            raise RefereeFailed(f"cannot start the referee: {error}", "run `pkb-arena doctor`") from None
        self._reader = asyncio.create_task(self._read())
        try:
            async with asyncio.timeout(START_S):
                ready = await asyncio.shield(self._ready)
        except TimeoutError:
            await self.kill()
            raise RefereeFailed(f"the referee was not ready after {START_S:.0f} s", "run `pkb-arena doctor`") from None
        except asyncio.CancelledError:
            await self.kill()
            raise
        if ready.version != VERSION:
            await self.kill()
            raise RefereeFailed(
                f"the referee speaks version {ready.version}, the engine {VERSION}", "reinstall pkb-arena"
            )
        return self

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def last_words(self) -> str:
        """The end of what it wrote to stderr."""
        return self._stderr.decode(errors="replace")

    async def send(self, command: AnyCommand) -> None:
        """Sends a command. If the referee has ended, `on_exit` reports it, not this method."""
        stdin = self._process.stdin
        assert stdin is not None
        with suppress(ConnectionError, RuntimeError):
            stdin.write(encode(command) + b"\n")
            await stdin.drain()

    async def stop(self) -> None:
        """Ends the referee in order, or kills it after SHUTDOWN_S."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(SHUTDOWN_S):
                await asyncio.shield(self._reader)
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """Kills the referee and its session with SIGKILL. Its worlds end with it."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(TimeoutError):
            async with asyncio.timeout(KILL_S):
                await asyncio.shield(self._reader)

    async def _read(self) -> None:
        stdout, stderr = self._process.stdout, self._process.stderr
        assert stdout is not None
        assert stderr is not None
        drain = asyncio.create_task(self._drain(stderr))
        why = ""
        try:
            why = await self._lines(stdout)
        finally:
            self.alive = False
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)  # a referee without its pipe is of no use
            status = await self._process.wait()
            if status:  # its worlds' folders are left
                await asyncio.to_thread(remove_all_leftovers, str(self._process.pid))
            with suppress(TimeoutError):
                async with asyncio.timeout(KILL_S):
                    await drain
            drain.cancel()
            why = why or _status(status)
            if not self._ready.done():
                text = self.last_words.strip().splitlines()
                self._ready.set_exception(
                    RefereeFailed(
                        f"the referee {why}: {text[-1] if text else 'it printed nothing'}", "run `pkb-arena doctor`"
                    )
                )
                self._ready.exception()  # retrieved here, because a cancelled start does not retrieve it
            else:
                self._on_exit(self, why)

    async def _lines(self, stdout: asyncio.StreamReader) -> str:
        """Passes on events until the pipe closes. Returns what was wrong with them; empty if nothing was."""
        rest = b""
        while chunk := await stdout.read(1 << 18):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                try:
                    event = decode_event(line)
                except ValueError as error:
                    return f"said something that is no event ({error})"
                if isinstance(event, Ready) and not self._ready.done():
                    self._ready.set_result(event)
                self._on_event(event)
            if len(rest) > LINE_BYTES:
                return "said an endless line"
        return ""

    async def _drain(self, stderr: asyncio.StreamReader) -> None:
        while chunk := await stderr.read(1 << 16):
            self._stderr += chunk
            del self._stderr[:-STDERR_BYTES]


def _status(status: int) -> str:
    if status < 0:
        with suppress(ValueError):
            return f"was killed by {signal.Signals(-status).name}"
        return f"was killed by signal {-status}"
    return f"ended with status {status}"
