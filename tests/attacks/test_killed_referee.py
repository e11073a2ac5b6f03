"""kill -9 of a referee at any moment, with kernels that mean to outlive it: no process is left."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

KERNELS = Path(__file__).parent / "kernels"
MARK = f"NCCL_PKB_KILLED_REFEREE=referee-{os.getpid()}"
"""Variables of NCCL are passed on to every world: by this one their processes are found."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, pytest.param(2, marks=pytest.mark.long)])
def test_a_killed_referee_takes_everything_along(walls, another_referee, bait, seed):
    name, _, value = MARK.partition("=")
    referee = another_referee(**{name: value})
    setting = referee.setting("allreduce")
    for kernel in ("honest", "h25_outlives_the_referee", "h16_daemons"):
        source = (KERNELS / f"{kernel}.py").read_text()
        referee.start(setting, bait.fill(source, referee.process.pid))
    time.sleep(
        random.Random(seed).uniform(0.0, 6.0)
    )  # starting, judging, or in the middle of the hanging one
    assert processes_with(MARK)
    referee.process.send_signal(signal.SIGKILL)
    referee.process.wait()
    until = time.monotonic() + 30
    while (left := processes_with(MARK)) and time.monotonic() < until:
        time.sleep(0.05)
    assert left == []


def processes_with(text: str) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if text.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found
