"""One referee, many runs of every kind: nothing is left of any of them.

PKB_SOAK_RUNS sets how many [12]; with PKB_SOAK_TABLE=FILE the counts are written there as Markdown.
"""

import os
import random
import signal
import statistics
import time
from pathlib import Path

import pytest

from arena.attack_suite import read_kernels
from sandbox.events import WorldChanged
from sandbox.verdict import Verdict

RUNS = int(os.environ.get("PKB_SOAK_RUNS", "12"))
TABLE = os.environ.get("PKB_SOAK_TABLE", "")  # now: the environment of a test is made bare
KERNELS = {kernel.name: kernel for kernel in read_kernels(Path(__file__).parent)}
KINDS = {
    "good": "honest",
    "wrong": "a05_one_wrong_element",
    "hanging": "h13_hang",
    "crashing": "h14_segfault",
    "flooding": "h10_endless_printing",
    "forking": "h08_forks",
    "leaving daemons": "h16_daemons",
}
MIB = 1 << 20
MARK = f"NCCL_PKB_SOAK=soak-{os.getpid()}"


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def counts(referee, bait) -> dict[str, int]:
    """What leaks would show in, once the next spare is ready: so every count is taken in the same state."""
    while (world := referee.until(WorldChanged)).role != "spare" or world.state != "ready":
        pass
    pid = referee.process.pid
    return {
        "worlds": len(namespaces(bait)),
        "processes": len(bait.processes()),
        "descriptors of the referee": len(os.listdir(f"/proc/{pid}/fd")),
        "entries in /dev/shm": len(os.listdir("/dev/shm")),
        "world folders in /tmp": sum(name.startswith("pkb-arena-world-") for name in os.listdir("/tmp")),
        "resident MiB of the referee": resident_bytes(pid) // MIB,
    }


def namespaces(bait) -> set[str]:
    """The baseline's world and the spare, each in a PID namespace of its own."""
    return set(bait.processes().values()) - {os.readlink("/proc/self/ns/pid")}


@pytest.mark.slow
@pytest.mark.timeout(60 + 40 * RUNS)
def test_nothing_is_left_of_many_runs(walls, referee, bait):
    setting = referee.setting("allreduce")
    for name in KINDS.values():  # what is loaded once is not a leak
        assert not KERNELS[name].surprise(run(referee, bait, setting, name))
    before = counts(referee, bait)
    order = (list(KINDS) * (RUNS // len(KINDS) + 1))[:RUNS]
    random.Random(5).shuffle(order)
    good: list[float] = []
    for kind in order:
        result = run(referee, bait, setting, KINDS[kind])
        assert not KERNELS[KINDS[kind]].surprise(result), kind
        if result.verdict is Verdict.PASS and kind == "good":
            good.append(result.seconds.total)
    after = counts(referee, bait)
    tell(before, after, good)
    assert after["worlds"] == before["worlds"] == 2
    assert after["processes"] <= before["processes"]
    assert after["descriptors of the referee"] <= before["descriptors of the referee"]
    assert after["resident MiB of the referee"] - before["resident MiB of the referee"] < 10 + RUNS // 20
    assert bait.harm() == ()


def run(referee, bait, setting, name):
    return referee.judge(setting, bait.fill(KERNELS[name].source, referee.process.pid))


def tell(before: dict[str, int], after: dict[str, int], good: list[float]) -> None:
    lines = [f"| after {RUNS} runs | before | after |", "|---|---|---|"]
    lines += [f"| {what} | {before[what]} | {after[what]} |" for what in before]
    half = len(good) // 2
    if half:
        first, second = statistics.median(good[:half]), statistics.median(good[half:])
        lines.append(f"| median seconds of good runs, first and second half | {first:.2f} | {second:.2f} |")
    if TABLE:
        Path(TABLE).write_text("\n".join(lines) + "\n")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_killed_referee_takes_everything_along(walls, another_referee, bait, seed):
    name, _, value = MARK.partition("=")
    referee = another_referee(**{name: value})
    delay = random.Random(seed).uniform(0.0, 6.0)
    setting = referee.setting("allreduce")
    for name in ("honest", "h25_outlives_the_referee", "h16_daemons"):
        referee.start(setting, bait.fill(KERNELS[name].source, referee.process.pid))
    time.sleep(delay)  # starting, judging, or in the middle of the hanging one
    assert processes_with(MARK)
    referee.process.send_signal(signal.SIGKILL)
    referee.process.wait()
    until = time.monotonic() + 10
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
