"""Caps of an agent program's jail: a program that exceeds one is ended with a reason that names it; others play on."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from scripted_agents import CAPS, Playing, UntilGone

from arena.duel.card import shortened
from arena.paths import Paths
from arena.players.program import watch
from arena.players.program.program import find_program
from arena.players.trace import Ended, read_trace
from arena.settings import AgentSettings, Settings
from sandbox.jail.memory import AgentUsage
from sandbox.jail.profiles import DISK_ROOM, Caps
from sandbox.machine.processes import cpu_seconds_of_all

pytestmark = [pytest.mark.usefixtures("jailed_agents"), pytest.mark.timeout(400)]
"""The timeout is shorter than a program's time limit, so a test fails if a cap does not end its program."""
KEPT_TO = {"memory": 60, "processes": 20, "disk": 60, "cpu": 0.5}
"""What the honest twin uses: less than every cap, and files and memory together less than the cap of memory."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("use", "caps", "which", "words"),
    [
        ({"memory": 100_000}, CAPS, "memory", "MiB together, more than the 256 MiB it may have"),
        ({"processes": 100_000}, CAPS, "processes", "processes and threads, more than the 64 it may have"),
        ({"disk": 100_000}, CAPS, "disk", "MiB, more than the 96 MiB it may have"),
        ({"cpu": 600}, replace(CAPS, cpu_seconds=1.0), "CPU time", "more than the 1 s they may have"),
        ({"connections": 100_000}, CAPS, "connections", "it opened more than 4 to its tools at once"),
    ],
)
async def test_program_over_cap_is_ended_and_told_which(
    playing: Playing,
    paths: Paths,
    script: Path,
    until_gone: UntilGone,
    use: dict[str, float],
    caps: Caps,
    which: str,
    words: str,
) -> None:
    played = await playing(caps=caps, USE=json.dumps(use))
    assert played.reason.startswith(f"limit of {which}: it"), played.reason
    assert shortened(played.reason) == f"limit of {which}"
    assert words in played.reason
    assert (played.best, played.attempts) == (None, [])
    (trace,) = paths.traces.glob("*.jsonl")
    *_, last = read_trace(trace)
    assert isinstance(last, Ended)
    assert last.reason == played.reason
    await until_gone(script)


@pytest.mark.slow
async def test_who_keeps_to_the_caps_plays_on(playing: Playing) -> None:
    played = await playing(USE=json.dumps(KEPT_TO))
    assert played.reason == "done"
    assert [attempt.passed for attempt in played.attempts] == [False, True]


@pytest.mark.slow
async def test_disk_that_was_filled_is_told_after_end(playing: Playing, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program ends by itself before its usage is checked again."""
    looked = 0
    excess = AgentUsage.excess

    def once(self: AgentUsage, pid: int) -> str:
        nonlocal looked
        looked += 1
        return excess(self, pid) if looked == 1 else ""

    monkeypatch.setattr(AgentUsage, "excess", once)
    monkeypatch.setattr(watch, "CHECK_S", 0.1)
    played = await playing(USE=json.dumps({"cpu": 0.5, "disk": 130}))
    assert played.reason.startswith("limit of disk: its files in /tmp take")
    assert DISK_ROOM > 34 << 20


@pytest.mark.slow
def test_cpu_time_of_children_that_have_ended_counts() -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}]); print(1, flush=True); input()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    parent.stdout.readline()
    resolution = 4 / os.sysconf("SC_CLK_TCK")  # a clock tick for each of four counters that are added
    assert cpu_seconds_of_all([parent.pid]) >= 0.3 - resolution
    parent.communicate(b"\n")
    assert cpu_seconds_of_all([parent.pid]) == 0.0


def test_caps_are_settings_of_the_program(script: Path) -> None:
    chosen = AgentSettings(command=[str(script)], memory_mib=100, processes=20, disk_mib=30, cpu_minutes=0.5)
    program = find_program("mine", Settings(agents={"mine": chosen}))
    assert program.caps == Caps(100 << 20, 20, 30 << 20, 30.0)
