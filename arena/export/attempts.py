"""Gathers the attempts for the pages from sweeps, models' traces and single runs."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from arena.errors import MachineError, UsageError, why
from arena.export.bundle import ShownPlayers
from arena.machine.facts import this_machine
from arena.models.budget import Spent
from arena.paths import Paths, files_in
from arena.players.trace import Answered, Counted, Ended, Judged, read_trace, read_trace_header
from arena.records.code_hash import code_hash
from arena.records.header import read_events, read_header
from arena.records.run_record import BriefResult, RunRecord, record_of, view
from arena.records.voids import Void, Voids, read_voids
from arena.sweep.journal import UNREADABLE_ADVICE, JournalDamaged, chosen_journals, read_lines
from arena.sweep.records import NO_KERNEL, CellResult, SweepSession, Written
from sandbox.protocol.events import Finished, Setting
from sandbox.protocol.kernel_files import Kernel

MODELS, RUNS = "models", "single runs"
"""Origins other than sweeps."""


class PageAttempt(BriefResult, frozen=True, kw_only=True):
    """One attempt. Its kernels stay in their journals until its page is written."""

    key: str
    """Its id: of a sweep's result, a trace or a run."""
    origin: str
    """ "sweep spring", MODELS or RUNS."""
    at: float
    """Seconds since the epoch."""
    problem_id: int
    problem: str
    player: str
    number: int = 0
    """Its number among several attempts; 0 if it has none."""
    setting: Setting
    machine: str
    """The machine in words; empty if not known."""
    report: RunRecord | None
    spent: Spent | None = None
    seconds: float = 0.0
    sha256: str = ""
    """Hash of its kernel; empty if there is none, or the kernel is in `trace`."""
    written: Kernel | None = None
    """The kernel as a sweep's journal has it."""
    trace: Path | None = None
    run: Path | None = None
    before: Path | None = None
    """The player's run before this one, of another kernel for the same problem."""
    void: Void | None = None


def gather_attempts(paths: Paths, names: Sequence[str] = ()) -> tuple[list[PageAttempt], list[str]]:
    """Returns the attempts of these sweeps; without names, of all sweeps, of other traces and of single runs.

    With them a sentence for each file that could not be read.

    Raises:
        UsageError: there is no such sweep, or there is no attempt.
        MachineError: no file with attempts can be read, or a folder cannot be read.
    """
    voids = read_voids(paths.voids)
    chosen = chosen_journals(paths.sweeps, names)
    players = ShownPlayers()
    attempts: list[PageAttempt] = []
    left_out = [voids.damaged] if voids.damaged else []
    for path in chosen:
        try:
            attempts += _of_sweep(paths, path, voids, players)
        except JournalDamaged as error:
            left_out.append(f"{error.message}; the pages are without this sweep")
    if not names:
        swept = {attempt.trace for attempt in attempts}
        covered = {run for attempt in attempts if attempt.report is not None for run in _runs(attempt.report)}
        for path in files_in(paths.traces):
            try:
                attempt, runs = _of_trace(path, voids, players)
            except (OSError, ValueError) as error:
                left_out.append(_left_out(path, error, "trace"))
                continue
            covered |= runs
            if path not in swept:
                attempts.append(attempt)
        attempts += _single_runs(paths, covered, voids, left_out, players)
    if not attempts and left_out:
        raise MachineError(f"there is no attempt to export: {left_out[0]}", UNREADABLE_ADVICE)
    if not attempts:
        raise UsageError("there is no attempt to export", "`pkb-arena run` or `pkb-arena sweep` makes one")
    return attempts, left_out


def _left_out(path: Path, error: Exception, kind: str) -> str:
    reason = why(error) if isinstance(error, OSError) else f"this is no {kind}"
    return f"{path}: {reason}; the pages are without it"


def _of_sweep(paths: Paths, path: Path, voids: Voids, players: ShownPlayers) -> list[PageAttempt]:
    """Returns the newest result of every key, sorted by problem, player and attempt."""
    results: dict[str, CellResult] = {}
    written: dict[str, Kernel] = {}
    machines: dict[str, str] = {}
    for line in read_lines(path):
        match line:
            case SweepSession():
                machines |= {machine.digest: str(machine) for machine in line.machines}
            case Written() if line.source and line.kernel is not None:
                written[line.cell.digest] = line.kernel
            case CellResult():
                results[line.key] = line
    order = sorted(results.values(), key=lambda line: (line.problem_id, line.cell.player, line.cell.attempt, line.at))
    return [
        view(
            PageAttempt,
            line,
            line.cell,
            origin=f"sweep {path.stem}",
            problem=line.cell.slug,
            player=players.of(line.cell.player),
            number=line.cell.attempt,
            machine=machines.get(line.machine, ""),
            written=written.get(line.cell.digest),
            trace=_inside(paths.traces, line.trace_id),
            run=_inside(paths.runs, line.run_id),
            void=voids.of(line.run_id, line.code),
        )
        for line in order
    ]


def _inside(folder: Path, name: str) -> Path | None:
    """Returns the journal with this id; None if there is none, or the id cannot be a file's name."""
    path = folder / f"{name}.jsonl"
    return path if name and "/" not in name and "\0" not in name and path.is_file() else None


def _of_trace(path: Path, voids: Voids, players: ShownPlayers) -> tuple[PageAttempt, set[str]]:
    """Returns a model's attempt with the verdict on its best kernel, and the ids of all its runs.

    Raises:
        OSError, ValueError: no file, or not a trace.
    """
    header = read_trace_header(path)
    kernels: dict[int, Kernel] = {}
    judged: dict[int, RunRecord] = {}
    spent, best = Spent(), None
    for event in read_trace(path):
        match event:
            case Answered():
                kernels[event.step] = event.kernel
            case Counted():
                spent = event.spent
            case Judged():
                judged[event.step] = event.report
                best = event.step if event.gain or best is None else best
            case Ended():
                spent, best = event.spent, event.best_step or best
    found = judged.get(best) if best is not None else None
    kernel = kernels.get(best or 0, Kernel(""))
    attempt = view(
        PageAttempt, header,
        key=header.trace_id,
        origin=MODELS,
        at=header.created,
        problem=header.slug,
        player=players.of(header.player),
        machine="",
        run_id=found.run_id if found is not None else "",
        verdict=found.verdict if found is not None else NO_KERNEL,
        detail=found.detail if found is not None else "",
        report=found,
        spent=spent,
        trace=path,
        void=voids.of(found.run_id, code_hash(kernel)) if found is not None else None,
    )  # fmt: skip
    return attempt, {run for each in judged.values() for run in _runs(each)}


def _runs(found: RunRecord) -> list[str]:
    """Returns the ids of a report's run and of its runs at other sizes."""
    return [found.run_id, *(other.run_id for other in found.others)]


def _single_runs(
    paths: Paths, covered: set[str], voids: Voids, left_out: list[str], players: ShownPlayers
) -> Iterator[PageAttempt]:
    """Yields finished runs that belong to no sweep and no trace.

    Runs against another kernel, at other sizes, or for correctness only are no attempts.
    """
    last: dict[tuple[str, str], tuple[str, Path]] = {}
    """The kernel and journal of the newest run, by player and problem."""
    before: dict[tuple[str, str], Path] = {}
    for path in files_in(paths.runs):
        try:
            header = read_header(path)
            end = next((event for event in read_events(path) if isinstance(event, Finished)), None)
        except (OSError, ValueError) as error:
            left_out.append(_left_out(path, error, "run"))
            continue
        no_attempt = header.versus or header.other_than or header.correctness_only
        if end is None or no_attempt or header.run_id in covered:
            continue
        whose = (header.player, header.slug)
        if whose in last and last[whose][0] != header.sha256:
            before[whose] = last[whose][1]
        last[whose] = (header.sha256, path)
        here = this_machine(header.setting.device)
        found = record_of(header, end.result)
        yield view(
            PageAttempt, found, header,
            key=header.run_id,
            origin=RUNS,
            at=header.created,
            problem=header.slug,
            player=players.of(header.player),
            machine=str(here) if header.machine in ("", here.digest) else "",
            report=found,
            seconds=0.0,
            run=path,
            before=before.get(whose),
            void=voids.of(header.run_id, found.code),
        )  # fmt: skip
