"""After kill -9 of a referee at any moment, no process is left, even if kernels try to outlive it. After kill -9 of its
fork server, the worlds end, and another fork server forks later ones."""

import os
import random
import signal
import time
from pathlib import Path

import pytest
from waiting import eventually

from benchmarks.attacks.attack_suite import read_kernel
from sandbox.machine.processes import children, runs, tree
from sandbox.protocol.verdict import Verdict

KERNELS = Path(__file__).parent / "kernels"
MARK = f"NCCL_PKB_KILLED_REFEREE=referee-{os.getpid()}"
"""NCCL_ variables are passed on to every world. This one identifies the processes of all worlds."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2))])
def test_a_killed_referee_takes_everything_along(jail, another_referee, bait, seed):
    name, _, value = MARK.partition("=")
    referee = another_referee(**{name: value})
    setting = referee.setting("allreduce")
    for kernel in ("honest", "h25_outlives_the_referee", "h16_daemons"):
        source = read_kernel(KERNELS / f"{kernel}.py").source
        referee.start(setting, bait.fill(source, referee.process.pid))
    eventually(lambda: processes_with(MARK))
    time.sleep(random.Random(seed).uniform(0.0, 6.0))  # at the start, while judging, or in the kernel that hangs
    referee.process.send_signal(signal.SIGKILL)
    referee.process.wait()
    eventually(lambda: not processes_with(MARK))


@pytest.mark.slow
@pytest.mark.further
def test_killed_fork_server_takes_its_worlds_along(another_referee):
    referee = another_referee()
    setting, source = referee.setting("allreduce"), (KERNELS / "honest.py").read_text()
    assert referee.judge(setting, source, rounds=0).verdict is Verdict.PASS
    servers = fork_servers_of(referee.process.pid)
    if not servers:
        pytest.skip("in this jail every world is a program of its own")
    worlds = set(tree(servers[0]))
    os.kill(servers[0], signal.SIGKILL)
    eventually(lambda: not any(map(runs, worlds)))
    verdicts = [referee.judge(setting, source, rounds=0).verdict for _ in range(2)]
    assert verdicts[-1] is Verdict.PASS  # the first may have got a world that was already dead
    assert len(fork_servers_of(referee.process.pid)) == 1


def fork_servers_of(referee: int) -> list[int]:
    command = b"sandbox.rank.fork_server\0"
    return [pid for pid in children(referee) if command in command_line(pid)]


def command_line(pid: int) -> bytes:
    """The command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def processes_with(text: str) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if text.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found
