"""Measurement: what the jail adds to the time from a save to its verdicts, and to the start of a process."""

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from arena.errors import MachineError
from arena.machine.facts import is_jail
from benchmarks.figure import Figure
from benchmarks.save_to_verdict import SavedKernel, on_cpu_ranks, saved_kernel
from sandbox.jail.choice import Jail, choose
from sandbox.jail.profiles import NONE

REPETITIONS = 20
STARTS = 40
LIMIT_PERCENT = 10.0
NO_BUBBLEWRAP = {"PATH": str(Path(sys.executable).parent)}
"""The environment of a referee that finds no bubblewrap, so that its kernels run without a jail."""


async def measure(repetitions: int | None) -> list[Figure]:
    """Measures problem 13, tiny, on two CPU ranks: saves alternate between two engines, one of them without a jail.

    Raises:
        MachineError: there is no jail here, a run did not pass, or no verdict arrived.
    """
    count = repetitions or REPETITIONS
    jail = choose()
    if not is_jail(jail.name):
        raise MachineError("this machine has no jail to measure", "`pkb-arena doctor` says what it needs")
    starts = await asyncio.to_thread(_start_figures, jail)
    with tempfile.TemporaryDirectory(prefix="pkb-bench-") as folder:
        async with AsyncExitStack() as stack:
            jailed = await stack.enter_async_context(saved_kernel(Path(folder) / "jailed", on_cpu_ranks()))
            bare = await stack.enter_async_context(saved_kernel(Path(folder) / "bare", on_cpu_ranks(), NO_BUBBLEWRAP))
            if not is_jail(jailed.jail) or is_jail(bare.jail):
                raise MachineError(f"the two engines ran in {jailed.jail!r} and {bare.jail!r}")
            pairs = [await _pair(jailed, bare, jailed_first=turn % 2 == 0) for turn in range(count)]
    figures = []
    for at, what in enumerate(("save to correctness verdict", "save to full verdict")):
        behind = [with_jail[at] for with_jail, _ in pairs]
        without = [no_jail[at] for _, no_jail in pairs]
        a, b = statistics.median(behind), statistics.median(without)
        ratio = statistics.median(x / y for x, y in zip(behind, without, strict=True))
        detail = f"{a:.3f} s in {jailed.jail}, {b:.3f} s without, medians of {count} each in turns; "
        detail += f"{100 * (ratio - 1):+.1f} % by pairs"
        figures.append(Figure(f"{what}: jail adds", 100 * (a / b - 1), "%", LIMIT_PERCENT, detail))
    return [*figures, *starts]


async def _pair(
    jailed: SavedKernel, bare: SavedKernel, jailed_first: bool
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Times a save with a jail and one without, in either order, while no world of either side is starting."""
    times = {}
    for kernel in (jailed, bare) if jailed_first else (bare, jailed):
        await asyncio.gather(jailed.quiet(), bare.quiet())
        times[kernel] = await kernel.save()
    return times[jailed], times[bare]


def _start_figures(jail: Jail) -> list[Figure]:
    """Times the start of a process that ends at once, in a jail and without one, in turns."""
    bare = Jail(NONE, None, {})
    with tempfile.TemporaryDirectory(prefix="pkb-bench-") as folder:
        pairs = [(_start_ms(jail, Path(folder)), _start_ms(bare, Path(folder))) for _ in range(STARTS)]
    behind, without = (statistics.median(times) for times in zip(*pairs, strict=True))
    detail = f"{behind:.1f} ms in {jail.name}, {without:.1f} ms without, medians of {STARTS} each in turns"
    return [Figure("starting a process: jail adds", behind - without, "ms", None, detail)]


def _start_ms(jail: Jail, folder: Path) -> float:
    wrapped = jail.profile.wrap(["/bin/true"], folder, {}, filter_fd=jail.filter_fd())
    started = time.perf_counter()
    try:
        subprocess.run(wrapped.argv, **wrapped.inherited, stdin=subprocess.DEVNULL, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise MachineError(f"the jail does not start: {error}", "run `pkb-arena doctor`") from None
    finally:
        for fd in wrapped.fds:
            os.close(fd)
    return 1e3 * (time.perf_counter() - started)
