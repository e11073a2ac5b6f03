"""Reading a sweep's results: the newest line of every key, as numbers or whole."""

from collections.abc import Iterator
from pathlib import Path

from arena.board.outcomes import Outcome, outcome_of
from arena.machine.fingerprint import Machine
from arena.sweep.journal import read_lines
from arena.sweep.records import REFUSED, CellResult, SweepSession


def results(path: Path) -> Iterator[CellResult]:
    """All lines with a result, in the order in which they came; a later one replaces one with the same key.

    Raises:
        OSError: the journal cannot be read.
        JournalDamaged: it is none.
    """
    return (line for line in read_lines(path) if isinstance(line, CellResult))


def outcomes(path: Path, source: str = "") -> list[Outcome]:
    """What counts for scores: verdicts on kernels, and answers without one. Errors of the harness and refusals do not.

    Raises:
        OSError, JournalDamaged: as `results`.
    """
    newest: dict[str, Outcome] = {}
    for result in results(path):
        if result.final and result.verdict != REFUSED:
            newest[result.key] = outcome_of(result, source)
    return list(newest.values())


def machines_of(path: Path) -> dict[str, Machine]:
    """The machines of a sweep by their fingerprint.

    Raises:
        OSError, JournalDamaged: as `results`.
    """
    lines = (line for line in read_lines(path) if isinstance(line, SweepSession))
    return {machine.digest: machine for line in lines for machine in line.machines}
