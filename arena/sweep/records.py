"""The lines of a sweep's journal, and the digests that identify cells and problems. Fields are added, never renamed."""

import functools
import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

import problems
from arena.machine.fingerprint import Machine
from arena.models.budget import Spent
from arena.records.json_lines import decoder
from arena.records.ranking import Measurement
from arena.records.run_record import RunRecord
from arena.sweep.plan import SweepPlan
from problems.specification import Problem
from sandbox.protocol.events import Setting
from sandbox.protocol.kernel_files import Files
from sandbox.protocol.verdict import Verdict

VERSION = 1
NO_KERNEL = "NO_KERNEL"
"""Instead of a verdict: the player's answer contained no kernel."""
REFUSED = "REFUSED"
"""Instead of a verdict: the setting cannot be run."""


class SweepLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of all lines. `at`: seconds since the epoch."""

    at: float = 0.0


class SweepOpened(SweepLine, tag="sweep", frozen=True, kw_only=True):
    """First line."""

    name: str
    version: int = VERSION


class SweepSession(SweepLine, tag="session", frozen=True, kw_only=True):
    """A session of the sweep begins."""

    plan: SweepPlan
    machines: list[Machine]
    """Machines of the workers, without repetition."""
    arena: str
    """Version of pkb-arena."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One place in the table of a sweep."""

    slug: str
    setting: Setting
    """Without `problem_dir`, because that path is valid on one machine only."""
    player: str
    attempt: int
    catalogue: str
    """Version of the problem: a digest of its files."""

    @property
    def digest(self) -> str:
        """Sixteen characters that identify the cell."""
        return _digest(msgspec.json.encode(self, order="sorted"))

    def key(self, sha256: str, machine: str) -> str:
        """Returns the key of a result: of this cell, the kernel's hash ("" without one), the machine's fingerprint."""
        return _digest(f"{self.digest} {sha256} {machine}".encode())


class Written(SweepLine, tag="written", frozen=True, kw_only=True):
    """A player has answered. It is not asked again for this cell."""

    cell: Cell
    source: str | None
    files: Files = {}
    """The other files of a kernel of several files; then `source` is the text of its kernel.py."""
    file_name: str
    reason: str
    spent: Spent
    trace_id: str


class Unanswered(SweepLine, tag="unanswered", frozen=True, kw_only=True):
    """A player was asked and gave no answer. The provider failed, the budget was spent, or the sweep was interrupted.

    The cost counts all the same.
    """

    cell: Cell
    why: str
    spent: Spent


class CellResult(SweepLine, tag="result", frozen=True, kw_only=True):
    """A cell is judged. A later line with the same key replaces this one."""

    key: str
    cell: Cell
    problem_id: int
    category: str
    class_: str
    sha256: str
    """Hash of the kernel's files; empty without a kernel."""
    code: str = ""
    """Hash of its code (`arena.records.code_hash`); empty without a kernel."""
    machine: str
    """Fingerprint of the worker's machine; the session's line has it in words."""
    worker: str
    verdict: str
    """A `Verdict`, NO_KERNEL or REFUSED."""
    detail: str
    report: RunRecord | None
    """As `run --json`, with a shortened text of the failure; None without a run."""
    spent: Spent
    trace_id: str
    seconds: float
    """Time at the worker, including failed tries and other sizes."""
    tries: int = 1

    @property
    def final(self) -> bool:
        """Whether the result is about the kernel. Harness errors are not final: a resumed sweep tries them again."""
        return self.verdict != Verdict.HARNESS_ERROR

    @property
    def passed(self) -> bool:
        """Whether the kernel is correct."""
        return self.verdict == Verdict.PASS

    @property
    def run_id(self) -> str:
        """Id of the run that judged it; empty without a run."""
        return self.report.run_id if self.report is not None else ""

    @property
    def measurement(self) -> Measurement | None:
        """The measurement of a correct kernel; None if nothing was timed."""
        report = self.report
        if report is None or report.interval is None or not self.passed:
            return None
        key = (self.code, self.cell.slug, self.cell.setting, self.cell.player, self.machine)
        return Measurement(msgspec.json.encode(key), report.interval, report.clock)


AnyLine = SweepOpened | SweepSession | Written | Unanswered | CellResult

decode_line: Callable[[bytes], AnyLine] = decoder(AnyLine)


_FILES = ("problem.toml", "inputs.py", "baseline.py")
_SHARED = Path(problems.__path__[0])


def version_of(problem: Problem) -> str:
    """Returns twelve characters that change with the problem's sizes, inputs, baseline or checks, not with its card.

    Raises:
        OSError: a file of it cannot be read.
    """
    return _digest_of([_shared().encode(), *((problem.folder / name).read_bytes() for name in _FILES)])


@functools.cache
def _shared() -> str:
    """The digest of the code that problems share."""
    return _digest_of(path.read_bytes() for path in sorted((_SHARED / "shared").rglob("*.py")))


def _digest_of(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:12]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
