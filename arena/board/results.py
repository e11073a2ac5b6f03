"""Reads a sweep's results: all of them, or the newest of every key as outcomes. Also reads its machines."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from arena.board.outcomes import NOISY, Outcome, outcome_of
from arena.machine.fingerprint import Machine
from arena.records.ranking import Measurement, Ranked, ranked
from arena.records.voids import Voids
from arena.sweep.journal import read_lines
from arena.sweep.records import REFUSED, CellResult, SweepSession


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
