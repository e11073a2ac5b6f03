"""The plain loop's ranks: real processes with a real process group, started, timed, stopped and killed."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from waiting import comes_true

from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from benchmarks.plain_loop.messages import TimeCalls
from benchmarks.plain_ranks import PlainRanks
from benchmarks.plain_turns import PlainTurns
from problems.catalogue import load_catalogue
from sandbox.machine.processes import children, runs
from sandbox.protocol.events import Setting

CATALOGUE = load_catalogue()


def setting(problem: str, world: int = 2) -> Setting:
    choice = Choice(preset="tiny", world=world, device="cpu")
    return choose_setting(CATALOGUE.find(problem), choice, Settings())


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def all_stop(pids: list[int]) -> None:
    """Waits until all processes have stopped: a process handles a signal only when it gets a core."""
    await comes_true(lambda: all(state(pid) == "T" for pid in pids))


async def turns_of_two_problems() -> None:
    ranks = PlainRanks(2, "cpu")
    try:
        await ranks.start()
        pids = [process.pid for process in ranks._processes]
        # Problem 41 writes to its inputs, problem 51 has its own process groups.
        for problem in ("41", "51"):
            async with ranks.awake():
                assert await ranks.open(setting(problem)) == 24
            await all_stop(pids)
            times = await PlainTurns(ranks).turn()
            await all_stop(pids)
            assert len(times.call) >= 5
            assert all(us > 1.0 for us in times.call)
            assert times.device == []
        async with ranks.awake():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.3):
                    await ranks.time(TimeCalls(repetitions=100_000, calls=24, warm=0))
    finally:
        await ranks.close()
    assert not any(map(runs, pids))
    assert not any(children(pid) for pid in pids)
    await ranks.close()  # a second close does nothing


@pytest.mark.slow
@pytest.mark.further
def test_turns_end_stopped_and_closing_kills_ranks() -> None:
    asyncio.run(turns_of_two_problems())
