"""Plain ranks: W processes that are not part of the arena. The ranks of a plain loop are stopped between its turns."""

import asyncio
import secrets
import signal
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec

from arena.errors import MachineError
from arena.paths import ROOT, module_command, module_environment
from benchmarks.plain_loop import messages
from sandbox.machine import processes
from sandbox.machine.devices import kind_of
from sandbox.protocol.events import Setting

MODULE = "benchmarks.plain_loop.rank"
JOIN_S, OPEN_S, ANSWER_S = 180.0, 180.0, 120.0
"""Deadlines in seconds. If a rank misses one, all ranks are given up."""
END_S = 5.0
INPUTS = 24
INPUT_BYTES = {"cpu": 1 << 30, "cuda": 12 << 30}
"""Limit for the inputs of a rank, by the kind of device."""
LINE_BYTES = 1 << 20


class PlainLoopFailed(MachineError):
    """A plain rank failed, or did not reply in time."""


class PlainRanks:
    """The plain ranks. They serve one problem after another while the world size and the devices stay the same."""

    def __init__(self, world: int, device: str) -> None:
        self.world = world
        self.device = device
        self._folder = tempfile.TemporaryDirectory(prefix="pkb-plain-")
        self._processes: list[Process] = []

    async def start(self) -> None:
        """Starts the ranks and waits until their process group is up.

        Raises:
            PlainLoopFailed: it did not come up.
        """
        kind = kind_of(self.device)
        environment = module_environment() | kind.environment(kind.gpus(self.world))
        environment["OMP_NUM_THREADS"] = "1"  # as torchrun does if it starts several ranks
        environment["PYTHONUNBUFFERED"] = "1"
        for rank in range(self.world):
            command = module_command(MODULE, str(rank), str(self.world), self.device, self._folder.name)
            with self._said(rank).open("wb") as said:
                process = await asyncio.create_subprocess_exec(
                    *command, stdin=PIPE, stdout=PIPE, stderr=said, cwd=ROOT, env=environment, limit=LINE_BYTES
                )
            self._processes.append(process)
        for reply in await self._replies(JOIN_S):
            if not isinstance(reply, messages.Joined):
                raise PlainLoopFailed("a plain rank did not join")

    async def open(self, setting: Setting) -> int:
        """Opens a problem; returns the number of sets of inputs.

        Raises:
            PlainLoopFailed: it could not be opened.
        """
        seeds = [secrets.randbits(62) for _ in range(INPUTS)]
        order = messages.DrawInputs(setting=setting, seeds=seeds, most_bytes=INPUT_BYTES[self.device])
        replies = await self._ask(order, OPEN_S)
        return min(reply.inputs for reply in replies if isinstance(reply, messages.InputsDrawn))

    async def time(self, order: messages.TimeCalls | messages.TimeQueued) -> messages.Times:
        """Measures the times of the slowest rank in each repetition.

        Raises:
            PlainLoopFailed: a call failed, or did not end.
        """
        return slowest([reply for reply in await self._ask(order, ANSWER_S) if isinstance(reply, messages.Times)])

    async def soak(self, order: messages.SoakBlock) -> list[messages.Soaked]:
        """Calls a block of the kit; returns the result of each rank.

        Raises:
            PlainLoopFailed: a call failed, or did not end.
        """
        return [reply for reply in await self._ask(order, ANSWER_S) if isinstance(reply, messages.Soaked)]

    @asynccontextmanager
    async def awake(self) -> AsyncIterator[None]:
        """Continues the ranks within a block; afterwards stops all their threads."""
        self._signal(signal.SIGCONT)
        try:
            yield
        finally:
            self._signal(signal.SIGSTOP)

    async def close(self) -> None:
        """Kills every rank, stopped or not. Takes at most END_S; may be called twice."""
        self._signal(signal.SIGKILL)
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                for process in self._processes:
                    await process.wait()
        self._processes = []
        self._folder.cleanup()

    def _signal(self, number: int) -> None:
        for process in self._processes:
            if process.returncode is None:
                processes.send(processes.tree(process.pid), number)

    async def _ask(self, order: messages.AnyOrder, limit_s: float) -> list[messages.AnyReply]:
        for process in self._processes:
            assert process.stdin is not None
            with suppress(ConnectionError, RuntimeError):  # a dead rank is detected when its reply is read
                process.stdin.write(messages.encode(order) + b"\n")
                await process.stdin.drain()
        return await self._replies(limit_s)

    async def _replies(self, limit_s: float) -> list[messages.AnyReply]:
        """One reply of each rank. The first failure ends the wait, because other ranks may block on the failed one."""
        reading = [asyncio.create_task(self._reply(rank)) for rank in range(len(self._processes))]
        try:
            async with asyncio.timeout(limit_s):
                return list(await asyncio.gather(*reading))
        except TimeoutError:
            silent = ", ".join(str(rank) for rank, task in enumerate(reading) if task.cancelled())
            raise PlainLoopFailed(f"plain ranks said nothing for {limit_s:.0f} s: {silent}") from None
        finally:
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)

    async def _reply(self, rank: int) -> messages.AnyReply:
        stream = self._processes[rank].stdout
        assert stream is not None
        try:
            line = await stream.readline()
            reply: messages.AnyReply = (
                messages.decode_reply(line) if line else messages.Broken(text=self._last_words(rank))
            )
        except (ValueError, msgspec.DecodeError) as error:
            reply = messages.Broken(text=f"it said something that is no reply ({error})")
        if isinstance(reply, messages.Broken):
            last = (reply.text.strip().splitlines() or ["it said nothing"])[-1]
            raise PlainLoopFailed(f"plain rank {rank} failed: {last}")
        return reply

    def _said(self, rank: int) -> Path:
        return Path(self._folder.name) / f"stderr{rank}"

    def _last_words(self, rank: int) -> str:
        return self._said(rank).read_text(errors="replace")[-4000:]


def slowest(replies: list[messages.Times]) -> messages.Times:
    """By repetition, the time of the slowest rank; queued only when every rank's calls were."""
    by_repetition = zip(*(reply.us for reply in replies), strict=True)
    return messages.Times(us=[max(us) for us in by_repetition], queued=all(reply.queued for reply in replies))
