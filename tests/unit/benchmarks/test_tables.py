"""The tables of `python -m benchmarks`: which runs are planned, and that each row is printed when its run ends."""

import asyncio
import math
from collections.abc import AsyncIterator

import pytest
from stored_runs import result as run_result

from arena.errors import MachineError
from arena.records.header import RunHeader
from arena.runs.judge import Judgement, RunInProgress, RunRequest, header_of
from arena.setting_choice import Choice
from arena.workspace.named_kernels import BASELINE, GRAPH, VARIANTS, has_variant
from benchmarks.kernels import kernel_paths
from benchmarks.rows import Counts, PlannedRun, RunRow
from benchmarks.tables import backends
from benchmarks.tables.collectives import GEMM, KERNELS, SIZES, plan, shape
from benchmarks.tables.gpu_runs import KERNEL_TABLE, conclude, rows_of
from problems.catalogue import load_catalogue
from sandbox.protocol.events import AnyEvent, Finished, Interval, Microseconds, Result, Seconds
from sandbox.protocol.result import Batches, Samples
from sandbox.protocol.verdict import Verdict

CATALOGUE = load_catalogue()


@pytest.mark.parametrize("number", KERNELS)
@pytest.mark.parametrize("world", [2, 3, 4])
@pytest.mark.parametrize("size", SIZES.values())
def test_sizes_are_those_of_the_whole_array(number, world, size):
    problem = CATALOGUE.find(str(number))
    sizes = shape(problem, size, world)
    assert sizes.keys() == problem.presets["production"].keys()
    parts = 1 if number == 1 else world
    whole = math.prod(sizes.values()) * parts * 2
    assert 0.9 * size <= whole <= size
    if world != 3:
        assert whole == size


def test_plan_takes_minutes_and_names_existing_kernels():
    runs = [run for number in (*KERNELS, GEMM) for run in plan(CATALOGUE.find(str(number)), 4)]
    assert 40 <= len(runs) <= 75
    for run in runs:
        assert has_variant(run.problem, run.kernel) if run.kernel in VARIANTS else run.kernel in kernel_paths()
    settings = [(run.problem.id, run.size, run.choice.preset) for run in runs]
    assert len(set(settings)) == sum(1 for at, each in enumerate(settings) if at == 0 or settings[at - 1] != each)


PAIR = Batches(calls=8, baseline_us=40.0, contender_us=20.0, baseline_first=True)


def result(verdict: Verdict, detail: str = "") -> Result:
    passed = verdict is Verdict.PASS
    times = Microseconds(call=40.0, device=20.0)
    return run_result(
        verdict,
        Interval(2, 1.9, 2.1) if passed else None,
        detail=detail,
        baseline_us=times if passed else None,
        contender_us=Microseconds(call=20.0, device=None) if passed else None,
        seconds=Seconds(time=1.5),
        jail="none",
        samples=Samples(call=[PAIR] * 12, device=[PAIR], harness_us=3.0, empty_gate_us=16.0),
    )


class MadeRun:
    """A run that has ended."""

    def __init__(self, header: RunHeader, result: Result) -> None:
        self.header = header
        self._result = result

    async def events(self) -> AsyncIterator[AnyEvent]:
        yield Finished(run_id=self.header.run_id, sha256=self.header.sha256, result=self._result)

    async def result(self) -> Judgement:
        return Judgement(self.header, self._result)

    async def cancel(self) -> None:
        """There is nothing left to cancel."""


class MadeJudge:
    """A judge that returns these results in turn, for any request."""

    jail = "none"

    def __init__(self, *results: Result) -> None:
        self._results = iter(results)

    async def start(self) -> None:
        """There is nothing to start."""

    async def judge(self, request: RunRequest) -> RunInProgress:
        return MadeRun(header_of(request), next(self._results))


def planned(kernel: str, size: str = "") -> PlannedRun:
    return PlannedRun(CATALOGUE.find("1"), kernel, Choice(preset="tiny", world=2, device="cpu"), size)


def test_rows_are_told_one_by_one_under_header():
    judge = MadeJudge(result(Verdict.PASS), result(Verdict.CRASH, "rank 1 was killed"))
    told: list[str] = []
    runs = [planned("allreduce_one_shot", "2 KB"), planned("allreduce_two_shot"), planned(GRAPH)]
    rows: list[RunRow] = []
    asyncio.run(rows_of(judge, runs, 9, told.append, rows))
    assert told[0] == KERNEL_TABLE.header
    assert [line.split()[2:6] for line in told[1:]] == [
        ["2", "KB", "allreduce_one_shot", "PASS"],
        ["tiny", "allreduce_two_shot", "CRASH", "–"],
        ["tiny", "baseline-graph", "REFUSED", "–"],
    ]
    assert "2.00 [1.90, 2.10]" in told[1]
    assert told[2].endswith("rank 1 was killed")
    starts = [KERNEL_TABLE.header.index("speedup, call"), told[1].index("2.00 [")]
    assert starts[0] == starts[1]
    assert [row.fault for row in rows] == [False, True, False]
    assert not conclude(rows).sound
    assert conclude(rows[::2]).sound


def test_a_row_says_how_much_was_measured():
    rows: list[RunRow] = []
    asyncio.run(rows_of(MadeJudge(result(Verdict.PASS)), [planned(BASELINE)], None, print, rows))
    assert rows[0].pairs == Counts(call=12, device=1)
    assert rows[0].calls == Counts(call=8, device=8)
    assert rows[0].harness_us == Microseconds(call=3.0, device=2.0)  # per call, not per batch
    assert rows[0].phases == Seconds(time=1.5)
    assert (rows[0].preset, rows[0].device) == ("tiny", "cpu")


def test_three_harness_errors_in_a_row_end_it():
    judge = MadeJudge(*[result(Verdict.HARNESS_ERROR, "no GPUs left")] * 3)
    told: list[str] = []
    with pytest.raises(MachineError, match="the last: no GPUs left"):
        asyncio.run(rows_of(judge, [planned(BASELINE)] * 5, 9, told.append, rows := []))
    assert len(told) == 4
    assert len(rows) == 3  # these rows can still be printed


def test_backend_examples_are_planned_at_every_preset():
    runs = [run for number in backends.KERNELS for run in backends.plan(CATALOGUE.find(str(number)), 2, None)]
    assert {run.kernel for run in runs} - {"house"} <= kernel_paths().keys()
    assert len(runs) == len({(run.problem.id, run.kernel, run.choice.preset) for run in runs})
    for run in runs:
        assert (run.choice.preset, "house") in [
            (other.choice.preset, other.kernel) for other in runs if other.problem is run.problem
        ]
