"""The tables of `doctor --bench`: what is planned, and that a row is told as soon as it is there."""

import asyncio
import math

import pytest

from arena.bench import gpu_runs
from arena.bench.collectives import GEMM, KERNELS, SIZES, plan, shape
from arena.bench.gpu_runs import EXAMPLES, Planned, rows_of
from arena.bench.row import HEADER, Row
from arena.bench.same_code_on_gpus import summary
from arena.engine import Engine
from arena.errors import MachineError
from arena.run_request import RunRequest
from arena.yardsticks import GRAPH, WORDS, has
from problems.catalogue import load_catalogue
from sandbox.events import Interval, Microseconds, Result, Seconds, Setting, Speedup
from sandbox.verdict import Verdict

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


def test_the_plan_takes_minutes_and_names_only_what_there_is():
    runs = [run for number in (*KERNELS, GEMM) for run in plan(CATALOGUE.find(str(number)), 4)]
    assert 40 <= len(runs) <= 75
    for run in runs:
        assert (
            has(run.problem, run.kernel) if run.kernel in WORDS else (EXAMPLES / f"{run.kernel}.py").is_file()
        )
    settings = [(run.problem.id, run.size, run.preset) for run in runs]
    assert len(set(settings)) == sum(
        1 for at, each in enumerate(settings) if at == 0 or settings[at - 1] != each
    )


def result(verdict: Verdict, detail: str = "") -> Result:
    passed = verdict is Verdict.PASS
    times = Microseconds(call=40.0, device=20.0)
    return Result(
        verdict=verdict,
        detail=detail,
        failure=None,
        paper_rule=None,
        error=None,
        speedup=Speedup(call=Interval(2, 1.9, 2.1), device=None) if passed else None,
        baseline_us=times if passed else None,
        contender_us=Microseconds(call=20.0, device=None) if passed else None,
        roofline=None,
        seconds=Seconds(),
        jail="none",
        sealed=True,
    )


@pytest.fixture
def judged(monkeypatch):
    """judged(results): runs have these results in turn."""

    def make(*results: Result) -> None:
        given = iter(results)

        async def judged(engine: Engine, request: RunRequest) -> tuple[None, Result]:
            return None, next(given)

        def setting(problem: object, choice: object, settings: object) -> Setting:
            return Setting(
                problem_dir="", preset="production", sizes={"M": 1}, world=4, device="cuda", dtype="bfloat16"
            )

        monkeypatch.setattr(gpu_runs, "run_to_end", judged)
        monkeypatch.setattr(gpu_runs, "choose_setting", setting)

    return make


def test_rows_are_told_one_by_one_under_a_header(judged):
    judged(result(Verdict.PASS), result(Verdict.CRASH, "cannot be captured in a CUDA graph: it waits"))
    problem = CATALOGUE.find("1")
    told: list[str] = []
    planned = [Planned(problem, "allreduce_one_shot", size="2 KB"), Planned(problem, GRAPH)]
    rows = asyncio.run(rows_of(planned, 4, 9, told.append))
    assert told[0] == HEADER
    assert [line.split()[2:6] for line in told[1:]] == [
        ["2", "KB", "allreduce_one_shot", "PASS"],
        ["production", "baseline-graph", "CRASH", "–"],
    ]
    assert "2.00 [1.90, 2.10]" in told[1]
    assert told[2].endswith("cannot be captured in a CUDA graph: it waits")
    starts = [HEADER.index("speedup, call"), told[1].index("2.00 [")]
    assert starts[0] == starts[1]
    assert [row.fault for row in rows] == [False, False]


def row(kernel: str, verdict: str, outcome: str = "", speedup: Speedup | None = None) -> Row:
    """Of problem 13, on four ranks."""
    return Row(
        id=13,
        problem="gemm_allreduce",
        size="production",
        sizes={},
        world=4,
        dtype="bfloat16",
        kernel=kernel,
        verdict=verdict,
        outcome=outcome,
        speedup=speedup,
    )


def test_a_kernel_of_the_kit_that_does_not_pass_is_a_fault():
    assert row("allreduce_one_shot", "CRASH").fault


def test_three_harness_errors_in_a_row_end_it(judged):
    judged(*[result(Verdict.HARNESS_ERROR, "no GPUs left")] * 3)
    told: list[str] = []
    with pytest.raises(MachineError, match="the last: no GPUs left"):
        asyncio.run(rows_of([Planned(CATALOGUE.find("1"), GRAPH)] * 5, 4, 9, told.append))
    assert len(told) == 4


def itself(outcome: str, call: tuple[float, float, float], verdict: str = "PASS") -> Row:
    median, low, high = call
    speedup = Speedup(call=Interval(median, low, high), device=Interval(1.001, 0.99, 1.01))
    return row("baseline", verdict, outcome, speedup if verdict == "PASS" else None)


def test_runs_of_identical_code_come_to_a_line():
    rows = [
        itself("even", (1.01, 0.98, 1.03)),
        itself("slower", (0.95, 0.93, 0.98)),
        itself("", (0, 0, 0), verdict="TIMEOUT"),
    ]
    assert summary(rows) == (
        "13 gemm_allreduce: 2 of 3 passed: 0 faster, 1 slower, 1 even, 0 too noisy; "
        "call 0.9500 to 1.0100, 1 inside 1 of 2 intervals; device 1.0010 to 1.0010, 1 inside 2 of 2 intervals"
    )


def test_a_baseline_that_is_faster_than_itself_is_a_fault():
    assert itself("faster", (1.1, 1.05, 1.2)).fault
    assert itself("", (0, 0, 0), verdict="TIMEOUT").fault
    assert not itself("slower", (0.95, 0.93, 0.98)).fault
