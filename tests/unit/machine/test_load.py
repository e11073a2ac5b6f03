"""The load that programs outside the arena cause."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import eventually

from sandbox.machine import processes
from sandbox.machine.scheduling import sessions_are_groups

BURNS = """
import os, time
from sandbox.machine.processes import adopt_orphans
adopt_orphans()  # as the referee and a world's launcher do
read, write = os.pipe()
def burn(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until: pass
for _ in range(3):  # orphans, which burn on their own
    if os.fork() == 0:
        if os.fork() == 0:
            burn(0.15)
            os.write(write, b"x")
            time.sleep(60)
        os._exit(0)
    os.wait()
    os.read(read, 1)
print(flush=True)
input()
os.killpg(0, 9)
"""


def own_seconds() -> float:
    """Those of this process and of all that it has started. A reading lacks what others use meanwhile: the largest counts."""
    return max(processes.outside_seconds(arena=0) - processes.outside_seconds(arena=os.getpid()) for _ in range(5))


def test_only_processes_outside_the_arena_count() -> None:
    before = own_seconds()
    started = [sys.executable, "-c", BURNS]
    with subprocess.Popen(started, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as child:
        child.stdout.readline()
        used = own_seconds() - before
        child.communicate(b"\n")
    assert used >= 0.3  # of 0.45 s


def test_processes_that_end_between_readings_count() -> None:
    before = processes.outside_seconds(arena=0)
    for _ in range(3):
        subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.15: pass"], check=True)
    assert processes.outside_seconds(arena=0) - before >= 0.4


def test_time_does_not_decrease_when_processes_end() -> None:
    burns = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    burning = subprocess.Popen([sys.executable, "-c", burns], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    before = processes.outside_seconds(arena=0)  # no process is the arena's
    burning.stdout.readline()
    used = processes.outside_seconds(arena=0)
    assert used - before >= 0.2
    handler = signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody collects its time
    burning.communicate(b"\n")
    signal.signal(signal.SIGCHLD, handler)
    assert processes.outside_seconds(arena=0) >= used


def test_a_share_above_all_cores_is_no_evidence() -> None:
    cores = len(os.sched_getaffinity(0))
    assert [processes.too_busy(share * cores * 10, 10.0) for share in (0.6, 0.8, 1.1, 1.5)] == [
        False,
        True,
        True,
        False,
    ]
    assert not processes.too_busy(0.8 * cores * 0.1, 0.1)


def test_a_lower_priority_is_a_choice() -> None:
    lowered, batch = (subprocess.Popen([*words, "sleep", "60"]) for words in (["nice"], ["chrt", "--batch", "0"]))
    try:
        eventually(lambda: processes.give_way([lowered.pid]))
        assert not processes.give_way([os.getpid(), batch.pid])  # every rank is scheduled in batches
    finally:
        for process in (lowered, batch):
            process.kill()
            process.wait()


def test_only_handled_signals_are_said_to_be_handled() -> None:
    handled = signal.SIGRTMIN + 2
    before = signal.signal(handled, lambda *_: None)
    try:
        assert [processes.handles(os.getpid(), handled + more) for more in (-1, 0, 1)] == [False, True, False]
    finally:
        signal.signal(handled, before)


@pytest.mark.parametrize(
    ("enabled", "cgroup", "weight", "groups"),
    [
        ("1", "0::/\n", False, True),
        ("", "", False, False),
        ("0", "0::/\n", False, False),
        ("1", "0::/user.slice\n", False, False),
        ("1", "4:memory:/user\n3:cpu,cpuacct:/\n", False, True),
        ("1", "3:cpu,cpuacct:/user\n", False, False),
        ("1", "0::/\n", True, False),
    ],
)
def test_sessions_share_cores_without_control_group(
    tmp_path: Path, enabled: str, cgroup: str, weight: bool, groups: bool
) -> None:
    for name, text in (("sys/kernel/sched_autogroup_enabled", enabled), ("self/cgroup", cgroup)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    if weight:
        (tmp_path / "cpu.weight").touch()
    assert sessions_are_groups(tmp_path, tmp_path) == groups
