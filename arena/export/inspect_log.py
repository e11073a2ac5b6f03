"""Results of a log of Inspect (`pkb_arena`), as the journal of a sweep: an epoch is an attempt."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from arena.errors import UsageError, require_extra
from arena.models.budget import Spent
from arena.records.run_record import RunRecord, record_in, view
from arena.sweep.records import NO_KERNEL, AnyLine, Cell, CellResult, SweepOpened, SweepPlan, SweepSession, version_of
from problems.catalogue import Catalogue, UnknownProblem
from sandbox.protocol.events import Setting

SCORER = "verdict"
"""Name of the scorer in `pkb_arena.inspect_task`."""


def write_journal(log: Path, journal: Path, catalogue: Catalogue) -> None:
    """Writes the results of a log into a new file. Samples with an error, or with a problem not known here, are left out.

    Raises:
        UsageError: it is no log of this task.
        MachineError: Inspect is not installed.
        OSError: the file cannot be written.
    """
    reader = require_extra("inspect", "inspect_ai.log", "a log of Inspect needs inspect-ai")
    try:
        samples = reader.read_eval_log(str(log)).samples or []
    except Exception as error:  # whatever its reader raises
        raise UsageError(f"{log} is no log of Inspect: {type(error).__name__}", "name its .eval file") from None
    results = list(_results(samples, catalogue))
    if not results:
        raise UsageError(f"{log} has no result of pkb_arena/pkb", "evaluate with `inspect eval pkb_arena/pkb`")
    players = list(dict.fromkeys(result.cell.player for result in results))
    plan = SweepPlan(players=players, problems=list(dict.fromkeys(result.cell.slug for result in results)))
    now = time.time()
    opened = (SweepOpened(at=now, name=log.stem), SweepSession(at=now, plan=plan, machines=[], arena=""))
    lines: list[AnyLine] = [*opened, *results]
    journal.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


def _results(samples: list[Any], catalogue: Catalogue) -> Iterator[CellResult]:
    reports = [_report(sample) for sample in samples]
    machine = next((report.machine for report in reports if report is not None), "")
    for sample, report in zip(samples, reports, strict=True):
        try:
            if sample.error is not None or SCORER not in (sample.scores or {}):
                continue
            facts: Mapping[str, Any] = sample.metadata
            problem = catalogue.find(facts["problem"])
            where = {name: facts[name] for name in ("preset", "device", "world", "dtype")}
        except (UnknownProblem, LookupError):
            continue
        setting = Setting(problem_dir="", sizes=report.sizes if report is not None else {}, **where)
        player = report.player if report is not None else f"model:{next(iter(sample.model_usage), 'inspect')}"
        cell = Cell(
            slug=problem.slug, setting=setting, player=player, attempt=sample.epoch, catalogue=version_of(problem)
        )
        sha256 = report.sha256 if report is not None else ""
        used = sample.model_usage.values()
        yield view(
            CellResult, problem,
            at=report.created if report is not None else time.time(),
            key=cell.key(sha256, machine),
            cell=cell,
            problem_id=problem.id,
            sha256=sha256,
            code=report.code if report is not None else "",
            machine=machine,
            worker="inspect",
            verdict=str(report.verdict) if report is not None else NO_KERNEL,
            detail=report.detail if report is not None else sample.scores[SCORER].explanation or "",
            report=report,
            spent=Spent(sum(each.input_tokens for each in used), sum(each.output_tokens for each in used)),
            trace_id="",
            seconds=float(sample.total_time or 0.0),
        )  # fmt: skip


def _report(sample: Any) -> RunRecord | None:
    """Returns the report of a sample's kernel; None without one."""
    score = (sample.scores or {}).get(SCORER)
    try:
        return record_in(score.metadata) if score is not None and score.metadata else None
    except ValueError:
        return None
