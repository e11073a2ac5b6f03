"""A referee without bubblewrap: its worlds live behind Landlock, and these kernels try what only that profile's ways allow."""

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from arena.machine.jail_policy import is_jail
from benchmarks.attacks.attack_bait import Bait
from tests.attacks.conftest import BASELINE, RefereeAtWork

pytestmark = pytest.mark.slow

KERNELS = Path(__file__).parent / "kernels"
HONEST = (KERNELS / "honest.py").read_text()


@pytest.fixture(scope="module")
def bait() -> Iterator[Bait]:
    """Bait of this referee's own: the session's referee is at work beside it, and these tests count processes."""
    bait = Bait(watched=(BASELINE,))
    yield bait
    bait.close()


@pytest.fixture(scope="module")
def behind_landlock(bait: Bait, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RefereeAtWork]:
    """PATH has everything but bubblewrap."""
    tools = tmp_path_factory.mktemp("tools")
    for folder in os.environ["PATH"].split(os.pathsep):
        for path in Path(folder).glob("*"):
            if path.name != "bwrap" and not (tools / path.name).is_symlink():
                (tools / path.name).symlink_to(path)
    assert shutil.which("bwrap", path=str(tools)) is None
    referee = RefereeAtWork(**bait.environment | {"PKB_DEADLINE_SCALE": "1"}, PATH=str(tools))
    result = referee.judge(referee.setting("allreduce"), HONEST, rounds=1)
    if result.jail != "landlock":
        referee.close()
        pytest.skip(f"the profile without bubblewrap is {result.jail} here")
    assert is_jail(result.jail)
    assert result.verdict.value == "PASS"
    yield referee
    referee.close()
    assert bait.all_gone(), bait.processes()


def judged(referee: RefereeAtWork, bait: Bait, source: str) -> tuple[str, str]:
    result = referee.judge(referee.setting("allreduce"), bait.fill(source, referee.process.pid), rounds=1)
    assert bait.harm(referee.said) == ()
    return result.verdict.value, result.detail


@pytest.mark.parametrize("name", ["allreduce_one_shot.py", "allreduce_cpp.py", "allreduce_two_shot.py"])
def test_symmetric_memory_and_compiling_work(behind_landlock, bait, name):
    example = Path(__file__).resolve().parents[2] / "sandbox/kit/examples" / name
    verdict, detail = judged(behind_landlock, bait, example.read_text())
    assert verdict == "PASS", detail


def test_another_process_group_works(behind_landlock, bait):
    source = HONEST.replace("def solution", "group = dist.new_group([0, 1])\n\ndef solution").replace(
        "dist.all_reduce(total", "dist.all_reduce(total, group=group"
    )
    assert "group=group" in source
    assert judged(behind_landlock, bait, source)[0] == "PASS"


FILLS_THE_DISK = """
import os
def solution(tensor):
    kept = []
    while True:
        @WRITE@
"""


@pytest.mark.parametrize(
    "write",
    [
        "kept.append(open(f'big{os.getpid()}-{len(kept)}', 'wb')); kept[-1].write(bytes(64 << 20)); kept[-1].flush()",
        "kept.append(os.open('.', os.O_RDWR | os.O_TMPFILE)); os.write(kept[-1], bytes(64 << 20))",
        "kept.append(os.mkdir(f'small{os.getpid()}-{len(kept)}'))",
    ],
)
def test_a_kernel_that_fills_the_disk_is_ended_and_its_files_go(behind_landlock, bait, write):
    source = FILLS_THE_DISK.replace("@WRITE@", write)
    verdict, detail = judged(behind_landlock, bait, source)
    assert verdict in ("OUT_OF_MEMORY", "TIMEOUT"), detail  # a slow disk takes longer than a call may
    assert "files" in detail or verdict == "TIMEOUT"
    wait_until_gone("big", "small")


def test_a_folder_that_was_closed_goes_too(behind_landlock, bait):
    source = "import os\nown = f'closed{os.getpid()}'\nos.makedirs(f'{own}/deep')\nos.umask(0o777)\n"
    source += "os.mkdir(f'{own}/shut')\n" + HONEST
    assert judged(behind_landlock, bait, source)[0] == "PASS"
    wait_until_gone("closed")


RUNS_AWAY = """
import os
for _ in range(4):
    if os.fork() == 0:
        os.setsid()
        while True:  # always a child of a process that is gone
            if os.fork():
                os._exit(0)
"""


def test_processes_that_fork_and_leave_without_end_are_all_killed(behind_landlock, bait):
    verdict, detail = judged(behind_landlock, bait, RUNS_AWAY + HONEST)
    assert verdict in ("PASS", "TIMEOUT", "CRASH", "BASELINE_DISTURBED"), detail
    assert judged(behind_landlock, bait, HONEST)[0] == "PASS"
    until = time.monotonic() + 30
    while (
        len(bait.processes()) > 12
    ):  # two worlds of a supervisor, a launcher and two ranks, and their sweeps
        assert time.monotonic() < until, bait.processes()
        time.sleep(0.1)


def wait_until_gone(*beginnings: str) -> None:
    """A world's folder goes after its verdict."""
    until = time.monotonic() + 20
    while left := left_in_worlds(*beginnings):
        assert time.monotonic() < until, f"{len(left)} are left, {left[0]} for one"
        time.sleep(0.1)


def left_in_worlds(*beginnings: str) -> list[str]:
    left = []
    for world in Path("/tmp").glob("pkb-arena-world-*"):
        with contextlib.suppress(OSError):
            left += [f"{world}/{name}" for name in os.listdir(world) if name.startswith(beginnings)]
    return left
