"""One judged attempt as a few numbers for scores, so that ten thousand of them need little memory."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from arena.machine.fingerprint import Machine
from arena.players.player import MCP, PlayerKind
from arena.records.ranking import Measurement, Ranked, ranked
from arena.records.run_record import RunRecord, view
from arena.records.voids import Voids
from arena.sweep.journal import read_lines
from arena.sweep.records import REFUSED, CellResult, SweepSession
from arena.workspace.named_kernels import GRAPH, HOUSE, NAMED

MODELS, AGENTS, PEOPLE, HOUSES, BASELINES = "model", "agent", "person", "house", "baseline"
NOISY = "too noisy"
"""The outcome if times are too noisy. It counts as not fast, and is left out of means."""


class ResultPlace(msgspec.Struct, frozen=True):
    """The setting and the machine of results that can be compared with each other."""

    preset: str
    """Name of the preset, also if sizes were overridden."""
    device: str
    world: int
    machine: str
    """A fingerprint (`arena.machine.fingerprint`)."""
    source: str = ""
    """Name of the imported bundle with the results; empty: made here."""


class Outcome(msgspec.Struct, frozen=True):
    """One attempt of one player at one problem."""

    player: str
    kind: str
    place: ResultPlace
    problem_id: int
    category: str
    class_: str
    passed: bool
    paper: bool | None
    """Whether the kernel is correct by the publication's rule (atol = rtol = 1e-2); None: not stored."""
    faster: bool
    """Whether the kernel is correct, and faster than the baseline by the whole 99 % interval."""
    speedup: float | None
    """Speedup over the baseline as called, by the headline's clock; None without one, or if times were too noisy."""
    over_graph: float | None
    """Speedup over the baseline in a CUDA graph, by the same clock."""
    percent: float | None
    """Percent of the roofline's bound."""
    gap_closed: float | None
    """Share of the gap between the baseline and that bound (`RunRecord.gap_closed`)."""
    noisy: bool
    """Whether the kernel is correct and its times were too noisy."""
    one_size_only: bool | None
    """Whether the kernel failed at other sizes; None: not known."""
    usd: float
    seconds: float
    voided: bool = False
    """Whether the result is voided. It then counts as a failed attempt."""
    backend: str = ""
    """Label of the backend that a correct kernel uses; empty: none."""
    holds: str = ""
    """Other sizes at which a faster kernel is faster, too: "all", "some" or "none"; empty if not known."""


def kind_of(player: str) -> str:
    """Returns the kind of a player by its name: `MODELS`, `AGENTS`, `PEOPLE`, `HOUSES` or `BASELINES`."""
    prefix = player.partition(":")[0]
    if prefix == PlayerKind.MODEL:
        return MODELS
    if prefix == PlayerKind.AGENT or player == MCP:
        return AGENTS
    if player == HOUSE:
        return HOUSES
    return BASELINES if player in NAMED else PEOPLE


def outcome_of(result: CellResult, source: str = "", voided: bool = False) -> Outcome:
    """Returns the outcome of a sweep's result."""
    report, setting = result.report, result.cell.setting
    passed = result.passed and not voided
    noisy = passed and report is not None and report.outcome == NOISY
    timed = report if passed and not noisy else None
    return view(
        Outcome, result, result.cell, result.spent,
        kind=kind_of(result.cell.player),
        place=ResultPlace(setting.preset, setting.device, setting.world, result.machine, source),
        passed=passed,
        paper=report is not None and report.paper_rule == "match" and not voided,
        faster=passed and report is not None and report.outcome == "faster",
        speedup=timed.median if timed is not None else None,
        over_graph=_over_graph(timed) if timed is not None else None,
        percent=timed.percent if timed is not None else None,
        gap_closed=timed.gap_closed if timed is not None else None,
        noisy=noisy,
        one_size_only=report.one_size_only if report is not None and report.tried_other_sizes and not voided else None,
        voided=voided,
        backend=report.backend if passed and report is not None else "",
        holds=(report.holds_at_other_sizes or "") if report is not None and not voided else "",
    )  # fmt: skip


def _over_graph(report: RunRecord) -> float | None:
    """Returns the time of the baseline in a CUDA graph, measured before in this setting, over the kernel's time."""
    graph, mine = report.beside.get(GRAPH), report.contender_us
    if graph is None or mine is None:
        return None
    there, here = (graph.device, mine.device) if report.clock == "device" else (graph.call, mine.call)
    return there / here if there and here else None


def results(path: Path) -> Iterator[CellResult]:
    """Returns all lines with a result, in order. Of several lines with the same key, the last one counts.

    Raises:
        OSError: the journal cannot be read.
        JournalDamaged: the file is no sweep's journal, or is damaged.
    """
    return (line for line in read_lines(path) if isinstance(line, CellResult))


def outcomes(path: Path, voids: Voids, source: str = "") -> list[Outcome]:
    """Returns the results that count in scores: verdicts on kernels, and answers without a kernel.

    Harness errors and refused settings do not count. A voided result counts as a failed attempt.

    Raises:
        OSError, JournalDamaged: as `results`.
    """
    newest: dict[str, tuple[Outcome, Measurement | None]] = {}
    for result in results(path):
        if result.final and result.verdict != REFUSED:
            voided = voids.of(result.run_id, result.code) is not None
            newest[result.key] = (outcome_of(result, source, voided), None if voided else result.measurement)
    found = [outcome for outcome, measurement in newest.values() if measurement is None]
    for kernel in ranked(newest.values(), lambda pair: pair[1]):
        found += [_pooled(outcome, kernel) for outcome, _ in kernel.items]
    return found


def _pooled(outcome: Outcome, kernel: Ranked[tuple[Outcome, Measurement | None]]) -> Outcome:
    """Returns an attempt with the pooled figures of all attempts with the same code, because one code has one speed."""
    if len(kernel.items) == 1:
        return outcome
    noisy = kernel.outcome == NOISY
    return msgspec.structs.replace(
        outcome,
        faster=kernel.outcome == "faster",
        speedup=None if noisy else kernel.speedup.median,
        percent=None if noisy else kernel.item[0].percent,
        gap_closed=None if noisy else kernel.item[0].gap_closed,
        over_graph=None if noisy else kernel.item[0].over_graph,
        noisy=noisy,
        holds=outcome.holds if kernel.outcome == "faster" else "",
    )


def machines_of(path: Path) -> dict[str, Machine]:
    """Returns the machines of a sweep by their fingerprints.

    Raises:
        OSError, JournalDamaged: as `results`.
    """
    lines = (line for line in read_lines(path) if isinstance(line, SweepSession))
    return {machine.digest: machine for line in lines for machine in line.machines}
