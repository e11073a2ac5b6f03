"""Profiles for the app: the request, and the child process that makes them, which ends if the profile is cancelled."""

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from arena.errors import MachineError
from arena.paths import ROOT, module_command, module_environment
from arena.profile.gpu_rules import GpuFigures
from arena.profile.ncu import NcuProfiled
from arena.profile.rules import RankFigures
from sandbox.protocol.events import Contender, Setting
from sandbox.protocol.profile import Outside, RankProfile


class ProfileRequest(Contender, frozen=True, kw_only=True):
    """One kernel to profile in one setting. An empty source stands for the baseline, whatever the name."""

    setting: Setting
    readable: list[str] = msgspec.field(default_factory=list)
    """The user's own problem folders."""
    peaks: dict[str, float] = msgspec.field(default_factory=dict)
    """From this machine's calibration; empty if there is none."""
    ncu_file: str = ""
    """Path for Nsight Compute's report of rank 0; empty: uses torch's profiler and the driver's counters."""


class Profiled(msgspec.Struct, frozen=True, tag="profiled"):
    """The end: every rank has reported."""

    reports: list[RankProfile]
    figures: list[RankFigures]
    """By rank, for CPU ranks; not valid if a rank failed."""
    gpu_figures: list[GpuFigures] = []
    """By rank, for ranks on GPUs."""
    outside: Outside | None = None
    """The driver's counters; None for CPU ranks and if the row of calls did not end."""

    @property
    def ranks(self) -> Sequence[RankFigures | GpuFigures]:
        """The figures by rank."""
        return self.gpu_figures or self.figures


Message = bool | Profiled | NcuProfiled | tuple[str, str]
"""True: it waits, because a kernel is being timed on the same devices. False: it has them, and a world starts.

A tuple is the end without a report: why, and what to do.
"""

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Message).decode


COMMAND = module_command("arena.profile.profiling")
END_S = 5.0
"""Seconds for an orderly end, which kills the world. Then the process is killed; its world dies with it."""
LINE_BYTES = 64 << 20


async def profile(request: ProfileRequest, tell: Callable[[bool], None]) -> Profiled | NcuProfiled:
    """Profiles a kernel without blocking; in minutes with Nsight Compute, if the request names a file for its report.

    Cancelling ends the process and its world. tell: called with True if the profile waits for its turn, and with False when it
    begins.

    Raises:
        MachineError: there is no report; the message says why.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=ROOT,
            env=module_environment(),
            start_new_session=True,
            limit=LINE_BYTES,
        )
    except OSError as error:
        raise MachineError(f"cannot start a profile: {error}", "run `pkb-arena doctor`") from None
    assert process.stderr is not None
    said = asyncio.create_task(process.stderr.read())
    try:
        return await _answer(process, request, tell, said)
    finally:
        await asyncio.shield(_end(process))
        said.cancel()


async def _answer(
    process: asyncio.subprocess.Process,
    request: ProfileRequest,
    tell: Callable[[bool], None],
    said: "asyncio.Task[bytes]",
) -> Profiled | NcuProfiled:
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(ConnectionError):  # if the process ended at once, its stderr is reported below
        process.stdin.write(msgspec.json.encode(request))
        await process.stdin.drain()
        process.stdin.close()
    async for line in process.stdout:
        message = await asyncio.to_thread(decode, line)  # megabytes, from many ranks
        match message:
            case bool():
                tell(message)
            case Profiled() | NcuProfiled():
                return message
            case (why, advice):
                raise MachineError(why, advice)
    words = (await said).decode(errors="replace").strip().splitlines()
    raise MachineError(f"the profile ended without a report: {words[-1] if words else 'it printed nothing'}")


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(END_S):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
