"""Plain ranks: W processes that are not part of the arena. The ranks of a plain loop are stopped between its turns.

Turns give call times, and on GPUs device times of queued batches, each of the slowest rank.
"""

import asyncio
import secrets
import signal
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
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


CALLS = 24
WARM = 5
TURN_S = 1.0
"""Target time of one clock's batches in a turn, in seconds."""
FEWEST, MOST = 5, 60
"""Repetitions of a turn."""
FEWER_CALLS = (CALLS, 8, 2, 1)
"""Calls of a queued batch; fewer are tried if a launch queue is too short."""
WAIT_SHARE, LEAST_WAIT_US, MOST_WAIT_US = 2.0, 3_000.0, 250_000.0
"""The stream is occupied for this multiple of the calls' own time, within these limits in microseconds."""


@dataclass
class PlainTimes:
    """Microseconds per call, one number for each repetition."""

    call: list[float] = field(default_factory=list)
    device: list[float] = field(default_factory=list)
    """Empty if calls cannot be queued."""


class PlainTurns:
    """The turns of one problem, which the ranks have open."""

    def __init__(self, ranks: PlainRanks) -> None:
        self.ranks = ranks
        self.queued_calls = CALLS if kind_of(ranks.device).has_gate else 0
        """Calls of a queued batch; 0: not even one call can be queued without waiting for the device."""

    async def turn(self) -> PlainTimes:
        """Runs one turn. The first calls after the stop do not count.

        Raises:
            PlainLoopFailed: a call failed, or did not end.
        """
        async with self.ranks.awake():
            await self.ranks.time(messages.TimeCalls(repetitions=2, calls=CALLS, warm=CALLS))
            probe = await self.ranks.time(messages.TimeCalls(repetitions=1, calls=CALLS, warm=WARM))
            repetitions = repetitions_for(probe.us[0])
            times = PlainTimes()
            times.call = (await self.ranks.time(messages.TimeCalls(repetitions, CALLS, WARM))).us
            if self.queued_calls:
                times.device = await self._queued(min(times.call), repetitions)
        return times

    async def _queued(self, call_us: float, repetitions: int) -> list[float]:
        """Measures device times; finds in the first turn how many calls can be queued."""
        while self.queued_calls:
            tried = self._order(1, call_us)
            if (await self._try(tried)).queued:
                times = await self._try(self._order(repetitions, call_us))
                if times.queued:
                    return times.us
            self.queued_calls = next((calls for calls in FEWER_CALLS if calls < self.queued_calls), 0)
        return []

    async def _try(self, order: messages.TimeQueued) -> messages.Times:
        """messages.Times batches; repeats a single batch that was not queued, because it may have waited for memory."""
        times = await self.ranks.time(order)
        if order.repetitions == 1 and not times.queued:
            times = await self.ranks.time(order)
        return times

    def _order(self, repetitions: int, call_us: float) -> messages.TimeQueued:
        return messages.TimeQueued(repetitions, self.queued_calls, wait_us(self.queued_calls, call_us))


def repetitions_for(call_us: float) -> int:
    """The repetitions of a turn, for calls of `call_us`."""
    wanted = int(TURN_S / max((CALLS + WARM) * call_us / 1e6, 1e-6))
    return max(FEWEST, min(wanted, MOST))


def wait_us(calls: int, call_us: float) -> float:
    """Microseconds to occupy the stream, so that `calls` calls are queued meanwhile."""
    return max(LEAST_WAIT_US, min(WAIT_SHARE * calls * call_us, MOST_WAIT_US))
