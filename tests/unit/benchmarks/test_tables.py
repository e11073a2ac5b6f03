"""The tables of `python -m benchmarks`: which runs are planned, and that each row is printed when its run ends."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from stored_runs import result as run_result

from arena.errors import MachineError
from arena.records.header import RunHeader
from arena.runs.judge import Judgement, RunInProgress, RunRequest, header_of
from arena.setting_choice import Choice
from arena.workspace.named_kernels import BASELINE, GRAPH
from benchmarks.rows import Counts, PlannedRun, RunRow
from benchmarks.tables.gpu_runs import KERNEL_TABLE, conclude, rows_of
from problems.catalogue import load_catalogue
from sandbox.protocol.events import AnyEvent, Finished, Interval, Microseconds, Result, Seconds, Setting
from sandbox.protocol.result import Batches, Samples
from sandbox.protocol.verdict import Verdict

CATALOGUE = load_catalogue()

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
        self.requests: list[RunRequest] = []

    async def start(self, setting: Setting | None = None) -> None:
        """There is nothing to start."""

    async def judge(self, request: RunRequest) -> RunInProgress:
        self.requests.append(request)
        return MadeRun(header_of(request), next(self._results))


def planned(kernel: str, size: str = "") -> PlannedRun:
    return PlannedRun(CATALOGUE.find("1"), kernel, Choice(preset="tiny", world=2, device="cpu"), size)


def test_rows_are_told_one_by_one_under_header():
    judge = MadeJudge(result(Verdict.PASS), result(Verdict.CRASH, "rank 1 was killed"))
    told: list[str] = []
    runs = [planned("gemm_allreduce", "2 KB"), planned("allreduce_two_shot"), planned(GRAPH)]
    rows: list[RunRow] = []
    asyncio.run(rows_of(judge, runs, 9, told.append, rows))
    assert told[0] == KERNEL_TABLE.header
    assert [line.split()[2:6] for line in told[1:]] == [
        ["2", "KB", "gemm_allreduce", "PASS"],
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


def test_planned_text_replaces_that_of_its_word():
    judge = MadeJudge(result(Verdict.PASS))
    rows: list[RunRow] = []
    text = "def solution(x):\n    return x\n"
    asyncio.run(rows_of(judge, [replace(planned(BASELINE), source=text)], None, print, rows))
    assert [(each.kernel_name, each.source) for each in judge.requests] == [("kernel.py", text)]
    assert rows[0].kernel == BASELINE


def test_three_harness_errors_in_a_row_end_it():
    judge = MadeJudge(*[result(Verdict.HARNESS_ERROR, "no GPUs left")] * 3)
    told: list[str] = []
    with pytest.raises(MachineError, match="the last: no GPUs left"):
        asyncio.run(rows_of(judge, [planned(BASELINE)] * 5, 9, told.append, rows := []))
    assert len(told) == 4
    assert len(rows) == 3  # these rows can still be printed
