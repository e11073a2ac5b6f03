"""Real control groups of worlds, and real kills. Skipped, with the reason, on machines that allow no such group."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import PATIENCE_S, eventually

from sandbox.jail import cgroup
from sandbox.jail.memory import Bound, described
from sandbox.jail.profiles import NONE

PLACE = cgroup.place(counted=True)
pytestmark = pytest.mark.skipif(isinstance(PLACE, str), reason=f"no group can be made: {PLACE}")
LIMIT = 64 << 20
HOG = """
kept = []
while len(kept) < 512:
    kept.append(bytearray(b"x") * (1 << 20))
print("took 512 MiB")
"""
MEMORY_FILE_HOG = """
import os
file = os.memfd_create("scratch")
for _ in range(512):
    os.write(file, bytes(1 << 20))
print("took 512 MiB")
"""
RABBIT = """
import os, sys
while True:
    if os.fork():
        os._exit(0)
    os.setsid()
"""


@pytest.fixture
def group() -> Iterator[cgroup.Group]:
    group = cgroup.make(LIMIT, counted=True)
    yield group
    assert group.remove()
    assert not group.path.exists()


def run(group: cgroup.Group, program: str) -> "subprocess.CompletedProcess[str]":
    argv = group.starts([sys.executable, "-c", program])
    return subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_a_process_enters_before_it_becomes_the_world(group):
    done = run(group, "print(open('/proc/self/cgroup').read())")
    assert f"/{group.path.name}\n" in done.stdout
    assert done.returncode == 0
    assert group.kills() == 0


@pytest.mark.parametrize("program", [HOG, MEMORY_FILE_HOG])
def test_what_asks_for_more_is_killed(group, program):
    done = run(group, program)
    assert done.returncode == -signal.SIGKILL
    assert done.stdout == ""
    assert group.kills() >= 1


def test_one_process_too_many_takes_the_others_along(group):
    argv = group.starts([sys.executable, "-c", "import time; time.sleep(600)"])
    with subprocess.Popen(argv) as bystander:
        eventually(lambda: len(members(group)) == 1)
        run(group, HOG)
        assert bystander.wait(PATIENCE_S) == -signal.SIGKILL


def test_a_group_without_a_limit_only_counts():
    group = cgroup.make(None, counted=True)
    try:
        assert run(group, HOG).stdout == "took 512 MiB\n"
        assert group.kills() == 0
    finally:
        assert group.remove()


def test_processes_that_fork_and_leave_are_killed(group):
    subprocess.run(group.starts([sys.executable, "-c", RABBIT]), check=False)
    eventually(lambda: len(members(group)) > 0)
    group.kill()
    eventually(lambda: members(group) == [])


def test_a_worlds_bound_says_that_it_was_exceeded(tmp_path):
    bound = Bound(NONE, tmp_path, LIMIT)
    assert bound.killed() == ""
    subprocess.run(bound.starts([sys.executable, "-c", HOG]), check=False)
    assert "64 MiB a world may have; the operating system has ended them" in bound.killed()
    assert bound.excess([]) == bound.killed()
    assert bound.close()
    assert str(PLACE) in described()


def test_this_process_can_still_start_others():
    """`cgroup.place` may have moved this process into its own group, which must not limit its memory further."""
    assert subprocess.run([sys.executable, "-c", HOG], capture_output=True, check=True).stdout
    assert os.getpid() in [int(pid) for pid in (own_group() / "cgroup.procs").read_text().split()]


@pytest.mark.parametrize("name", ["h12_memory_hog", "h12_memory_file_hog"])
def test_kernel_that_takes_all_memory_is_told_so(another_referee, bait, name):
    referee = another_referee(**bait.environment)
    source = (Path(__file__).parent / f"kernels/{name}.py").read_text()
    result = referee.judge(referee.setting("allreduce"), bait.fill(source, referee.process.pid))
    assert result.verdict.value == "OUT_OF_MEMORY"
    assert "the operating system has ended them" in result.detail
    honest = (Path(__file__).parent / "kernels/honest.py").read_text()
    assert referee.judge(referee.setting("allreduce"), honest).verdict.value == "PASS"
    pid = referee.process.pid
    referee.close()
    assert list(Path(PLACE).glob(f"{cgroup.PREFIX}{pid}-*")) == []


def members(group: cgroup.Group) -> list[str]:
    return (group.path / "cgroup.procs").read_text().split()


def own_group() -> Path:
    root, own = cgroup._own_group()
    assert own.is_relative_to(root)
    return own
