"""Many kernels on GPUs, a run each, against the baseline as called: a row is told as soon as it is there."""

import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

import sandbox
from arena.bench.row import HEADER, REFUSED, Row, Tell
from arena.engine import Engine
from arena.errors import MachineError, UsageError
from arena.kernel_run import run_to_end
from arena.named_kernels import named_kernel
from arena.paths import Paths
from arena.run_request import RunRequest
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from problems.catalogue import Catalogue, load_catalogue
from problems.specification import Problem
from sandbox.events import Setting
from sandbox.verdict import Verdict

EXAMPLES = Path(sandbox.__path__[0]) / "kit" / "examples"
LOST = 3
"""Harness errors in a row after which nothing more is tried."""


@dataclass(frozen=True)
class Planned:
    """One run to make: of a kernel that goes by a word, as for `run`, or by the name of one of the kit's examples."""

    problem: Problem
    kernel: str
    preset: str = "production"
    sizes: dict[str, int] = field(default_factory=dict)
    size: str = ""
    """The size in words."""


async def rows_of(planned: Iterable[Planned], world: int | None, rounds: int, tell: Tell) -> list[Row]:
    """Makes the runs one after another in one engine and tells each row, under a header.

    Raises:
        MachineError: there are not that many GPUs, or the harness failed three times in a row.
    """
    rows: list[Row] = []
    catalogue = load_catalogue()
    with tempfile.TemporaryDirectory(prefix="pkb-bench-") as folder:
        own = Paths(Path(folder) / "config", Path(folder) / "data", Path(folder) / "state")
        async with Engine(own) as engine:
            for run in planned:
                rows.append(await _row(engine, run, catalogue, world, rounds))
                if len(rows) == 1:
                    tell(HEADER)
                tell(rows[-1].text())
                if [row.verdict for row in rows[-LOST:]] == [Verdict.HARNESS_ERROR] * LOST:
                    raise MachineError(
                        f"{LOST} harness errors in a row; the last: {rows[-1].detail}",
                        "run `pkb-arena doctor`",
                    )
    return rows


async def _row(engine: Engine, run: Planned, catalogue: Catalogue, world: int | None, rounds: int) -> Row:
    choice = Choice(preset=run.preset, world=world, device="cuda", sizes=run.sizes)
    started = time.monotonic()
    try:
        setting = choose_setting(run.problem, choice, Settings())
    except UsageError as error:  # not every problem runs in every world
        return _said(run, None, REFUSED, error.message, started)
    name, source = named_kernel(run.kernel, run.problem, catalogue, setting.device) or _example(run.kernel)
    request = RunRequest(problem=run.problem, setting=setting, kernel_name=name, source=source, rounds=rounds)
    try:
        _, result = await run_to_end(engine, request)
    except UsageError as error:
        return _said(run, setting, REFUSED, error.message, started)
    return msgspec.structs.replace(
        _said(run, setting, result.verdict.value, result.detail, started),
        outcome=result.outcome,
        rounds=result.rounds,
        baseline_us=result.baseline_us,
        kernel_us=result.contender_us,
        speedup=result.speedup,
    )


def _example(name: str) -> tuple[str, str]:
    path = EXAMPLES / f"{name}.py"
    return path.name, path.read_text(encoding="utf-8")


def _said(run: Planned, setting: Setting | None, verdict: str, detail: str, started: float) -> Row:
    return Row(
        id=run.problem.id,
        problem=run.problem.slug,
        size=run.size or run.preset,
        sizes=setting.sizes if setting else run.sizes,
        world=setting.world if setting else 0,
        dtype=setting.dtype if setting else "",
        kernel=run.kernel,
        verdict=verdict,
        detail=detail,
        seconds=round(time.monotonic() - started, 2),
    )
