"""Fixtures: referees that tests drive by commands and events, as the engine does, and bait for what they judge."""

import itertools
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from waiting import PATIENCE_S

from arena.machine.facts import is_jail
from benchmarks.attacks.attack_bait import Bait, printed
from benchmarks.attacks.attack_suite import MOST_TRIES, TWIN, AttackKernel, harmful, read_catalogue, read_kernels
from problems.catalogue import load_catalogue
from sandbox.protocol import events
from sandbox.protocol.events import Result
from sandbox.protocol.verdict import Verdict

FOLDER = Path(__file__).parent
ROOT = Path(__file__).resolve().parents[2]
BASELINE = ROOT / "problems/collective/allreduce/baseline.py"

ALSO_SHOWN = {
    attack
    for attacks in (
        "A7 A12 A13 A16 A20 A25",  # tests/unit/rank/test_checks.py
        "A15 A17",  # tests/unit/rank/test_comparison.py
        "A18 T27",  # tests/unit/memory/test_slots.py
        "A21 A22",  # tests/unit/referee/test_labels.py
        "T14 T35",  # tests/unit/timing/test_random_effects.py
        "T11 T12 T15 T17 T20 T24 T29 T30 T31 T32 T36",  # tests/unit/judge: test_clocks, test_rounds, test_referee, ...
        "T21",  # tests/unit/rank/test_problem_arguments.py
        "H5 H17 T22 T26 T28",  # tests/unit/jail and tests/unit/worlds/test_stopping.py
        "H11 H25",  # named in test_attacks_on_the_host.py and test_killed_referee.py
        "H21",  # tests/unit/referee/test_messages.py
    )
    for attack in attacks.split()
}
"""Attacks against a rule that another test shows on the same code: their kernels are marked `further`.

The jail's own self-test shows nothing of a forked world, which joins its jail by other code: see LOOTERS.
"""
LOOTERS = ["a09", "h03", "h04", "h06", "h07", "h09", "h19_startup", "h20_includes", "h22", "h23", "h26", "t13"]
"""Starts of the names of kernels that only look for what they may not have. `make test` runs all of them in one world."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrizes `kernel_name` with the kernels whose attacks begin with a letter of the module's ATTACKS.

    `make test` runs the first kernel without a GPU of what stops attacks, the twins that several of them have, and the plain
    mistakes; LOOTERS together. Others are marked `further`, or `long` if an attack has several for one problem, device, verdict.
    Kernels of one problem follow one another, because worlds open problem after problem.
    """
    if "kernel_name" not in metafunc.fixturenames:
        return
    kernels = read_kernels(FOLDER)
    defences = {attack.id: attack.stopped_by for attack in read_catalogue(FOLDER)}
    first = {defences.get(kernel.attack): kernel for kernel in reversed(kernels) if kernel.device != "cuda"}
    twins = Counter(kernel.twin for kernel in first.values() if kernel.attack not in ALSO_SHOWN)
    shown = set()
    cases = []
    judged = (each for each in kernels if each.attack[0] in metafunc.module.ATTACKS)
    for kernel in sorted(judged, key=lambda each: (each.problem, each.preset)):
        case = (kernel.attack, kernel.problem, kernel.device, kernel.expect)
        mark = [pytest.mark.long] if case in shown else [pytest.mark.further]
        usual = kernel == first.get(defences.get(kernel.attack)) and kernel.attack not in ALSO_SHOWN
        usual &= not kernel.name.startswith(tuple(LOOTERS))
        if usual or twins[kernel.name] > 1 or kernel.attack == "-":
            mark = []
        elif kernel.attack == TWIN:
            mark = [pytest.mark.further]
        shown.add(case)
        cases.append(pytest.param(kernel.name, marks=mark))
    metafunc.parametrize("kernel_name", cases)


class RefereeAtWork:
    """A referee process and its output."""

    def __init__(self, **environment: str) -> None:
        """environment: variables to add to this process's own."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sandbox.referee.main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=os.environ | environment,
        )
        self.count = 0
        self.catalogue = load_catalogue()
        self.events: list[Any] = []
        """Of the last run."""

    def setting(self, name: str, world: int = 2, dtype: str = "", preset: str = "tiny", **sizes: int) -> events.Setting:
        """A problem on CPU ranks, in its first dtype if none is given."""
        problem = self.catalogue.find(name)
        return events.Setting(
            problem_dir=str(problem.folder),
            preset=preset,
            sizes=problem.sizes(preset, sizes),
            world=world,
            device="cpu",
            dtype=dtype or problem.dtypes[0],
        )

    def send(self, command: Any) -> None:
        """Sends a command."""
        self.process.stdin.write(events.encode(command) + b"\n")
        self.process.stdin.flush()

    def start(
        self, setting: events.Setting, source: str, name: str = "kernel.py", rounds: int | None = 3, **more: Any
    ) -> str:
        """Sends a run and returns its id. more: fields of `events.Run`."""
        self.count += 1
        run_id = f"run-{self.count}"
        self.send(events.Run(run_id=run_id, setting=setting, kernel_name=name, source=source, rounds=rounds, **more))
        return run_id

    def until(self, *kinds: type) -> Any:
        """Reads events of the last run until one of these kinds. Kills the referee and fails after PATIENCE_S."""
        assert self.process.stdout is not None
        watchdog = threading.Timer(PATIENCE_S, self.process.kill)
        watchdog.start()
        try:
            for line in self.process.stdout:
                event = events.decode_event(line)
                if getattr(event, "run_id", "") not in ("", f"run-{self.count}"):
                    continue  # of a run that a test has left
                self.events.append(event)
                if isinstance(event, kinds):
                    return event
        finally:
            watchdog.cancel()
        raise AssertionError("the referee ended")

    def judge(self, setting: events.Setting, source: str, **options: Any) -> events.Result:
        """Runs a kernel to its verdict, again if other programs left no core."""
        for _ in range(MOST_TRIES):
            self.events.clear()
            self.start(setting, source, **options)
            event = self.until(events.Finished, events.Refused, events.Fatal)
            assert isinstance(event, events.Finished), event
            if event.result.verdict is not Verdict.HARNESS_ERROR or "too busy" not in event.result.detail:
                break
        return event.result

    def close(self) -> None:
        """Closes the referee's stdin and waits up to 60 s for its end."""
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)


@pytest.fixture(scope="session")
def bait() -> Iterator[Bait]:
    """Canaries, listeners, a bystander and the baseline's file: for all tests of a session."""
    bait = Bait(watched=(BASELINE,))
    yield bait
    bait.close()


@pytest.fixture(scope="session")
def looters() -> list[AttackKernel]:
    """The kernels of LOOTERS."""
    return [kernel for kernel in read_kernels(FOLDER) if kernel.name.startswith(tuple(LOOTERS))]


@pytest.fixture(scope="session")
def referee(bait: Bait) -> Iterator[RefereeAtWork]:
    """One referee for all tests of a session: its worlds stay warm."""
    referee = RefereeAtWork(**bait.environment)
    yield referee
    referee.close()
    assert bait.all_gone(), bait.processes()


class Stand(NamedTuple):
    """A referee and its own bait. Stands share nothing."""

    referee: RefereeAtWork
    bait: Bait


@pytest.fixture(scope="session")
def stands() -> Iterator[Iterator[Stand]]:
    """Two stands, used in turns: one judges while the other prepares its next world. That takes longer than most
    verdicts. If other processes run tests beside this one, there is only one stand: they use the cores meanwhile.

    Deadlines have their usual length: only a kernel that hangs waits for one, however slow the machine is.
    """
    alone = os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1") == "1"
    baits = [Bait(watched=(BASELINE,)) for _ in range(2 if alone else 1)]
    stands = [Stand(RefereeAtWork(**bait.environment | {"PKB_DEADLINE_SCALE": "1"}), bait) for bait in baits]
    yield itertools.cycle(stands)
    for stand in stands:
        stand.referee.close()
        assert stand.bait.all_gone(), stand.bait.processes()
        stand.bait.close()


class Judged(NamedTuple):
    """One kernel's result and the output of its ranks."""

    kernel: AttackKernel
    result: Result
    printed: str


@pytest.fixture(scope="session")
def judged(request: pytest.FixtureRequest) -> Callable[[str], Judged]:
    """judged(name): judges a kernel of the suite once, and asserts that it got an expected verdict and did no harm.

    Attacks on answers and on the clock are timed, because they also act in timed calls. Attacks on the host are not:
    they act when they are loaded or called.
    """
    kernels = {kernel.name: kernel for kernel in read_kernels(FOLDER)}
    dangerous = harmful(read_catalogue(FOLDER))
    kept: dict[str, Judged] = {}

    def find(name: str) -> Judged:
        if name in kept:
            return kept[name]
        kernel = kernels[name]
        if kernel.device == "cuda":
            pytest.skip("needs a GPU: `python -m benchmarks attacks` runs it on a machine with one")
        if kernel.attack in dangerous:
            request.getfixturevalue("jail")
        if Verdict.TIMEOUT in kernel.expect:  # this referee has short deadlines
            referee, bait = request.getfixturevalue("referee"), request.getfixturevalue("bait")
        else:
            referee, bait = next(request.getfixturevalue("stands"))
        setting = referee.setting(kernel.problem, preset=kernel.preset or "tiny")
        rounds = {"A": 3, "T": 3, "H": 0}.get(kernel.attack[0], 1)
        for _ in range(kernel.runs):
            for _ in range(MOST_TRIES):
                source = bait.fill(kernel.source, referee.process.pid)
                result = referee.judge(setting, source, rounds=rounds)
                if not kernel.had_no_chance(result):
                    break
            surprise = kernel.surprise(result)
            if surprise and kernel.open:
                pytest.xfail(kernel.open)
            assert not surprise
            if result.verdict is not Verdict.PASS:
                assert result.failure.advice
        assert bait.harm(referee.events, jailed=is_jail(result.jail)) == ()
        kept[name] = Judged(kernel, result, printed(referee.events))
        return kept[name]

    return find


@pytest.fixture
def without_jail(bait: Bait) -> Iterator[RefereeAtWork]:
    """A referee that finds no bubblewrap."""
    referee = RefereeAtWork(**bait.environment, PATH=str(Path(sys.executable).parent))
    yield referee
    referee.close()


@pytest.fixture
def another_referee() -> Iterator[Callable[..., RefereeAtWork]]:
    """Starts referees that a test may kill. Keywords are variables to add to their environment."""
    started: list[RefereeAtWork] = []

    def start(**environment: str) -> RefereeAtWork:
        started.append(RefereeAtWork(**environment))
        return started[-1]

    yield start
    for referee in started:
        if referee.process.poll() is None:
            referee.close()
