"""The plan of a sweep, the lines of its journal, and the digests of cells and problems. Fields are added, never renamed."""

import functools
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

import problems
from arena.errors import UsageError
from arena.machine.facts import Machine
from arena.models.budget import Spent
from arena.players.player import parse_player
from arena.records.json_lines import decoder
from arena.records.ranking import Measurement
from arena.records.run_record import RunRecord, view
from arena.setting_choice import Choice, find_problem
from problems.catalogue import Catalogue
from problems.specification import CATEGORIES, CLASSES, Problem
from sandbox.protocol.events import Setting
from sandbox.protocol.kernel_files import Files, Kernel
from sandbox.protocol.result import Seconds
from sandbox.protocol.verdict import Verdict

ALL = "all"
CHANGEABLE = ("budget_usd", "seconds")
"""Fields that a resumed sweep may change: no result depends on the first, and the second only changes precision."""
_RANGE = re.compile(r"(\d+)-(\d+)")


class SweepPlan(Choice, frozen=True, kw_only=True):
    """The plan of a sweep, as its journal keeps it."""

    players: list[str]
    problems: list[str]
    """Slugs, in the order in which they are judged."""
    attempts: int = 1
    """Attempts of every player that is not fixed."""
    rounds: int | None = None
    seconds: float | None = None
    """Time budget of one measurement; None: that of the settings."""
    budget_usd: float | None = None
    """Money limit of all sessions together."""
    other_sizes: bool = False
    """After a PASS three other settings are judged; a faster kernel is timed in two of them."""
    shots: int = 1
    """Worked examples in a model's prompt."""
    steps: int = 20
    """Kernels that an agent may have judged in one attempt."""

    def changed(self, asked: Mapping[str, Any]) -> "SweepPlan":
        """Returns the plan of a resumed sweep. asked: the fields that the command line names.

        Raises:
            UsageError: a field differs that cannot change.
        """
        differ = [name for name, value in asked.items() if not _same(value, getattr(self, name))]
        if refused := [name for name in differ if name not in CHANGEABLE]:
            options = ", ".join("--size" if name == "sizes" else "--" + name.replace("_", "-") for name in refused)
            raise UsageError(
                f"a resumed sweep cannot change {options}",
                "resume it with --name alone, or begin another sweep without --resume",
            )
        return msgspec.structs.replace(self, **{name: asked[name] for name in differ})


def _same(one: object, other: object) -> bool:
    """Whether two values of a field are equal; the order of a list does not count."""
    return set(one) == set(other) if isinstance(one, list) and isinstance(other, list) else one == other


def parse_players(text: str) -> list[str]:
    """Returns the names in `--players`, each once.

    Raises:
        UsageError: one of them names no player, or there is none.
    """
    words = [str(parse_player(word)) for word in text.split(",") if word.strip()]
    if not words:
        raise UsageError("--players names nobody", "for example --players baseline,house,model:NAME")
    return list(dict.fromkeys(words))


def choose_problems(catalogue: Catalogue, texts: Sequence[str]) -> list[Problem]:
    """The problems of a set: "all", "category:expert", "class:B", "1-8,13", names; several are joined.

    Raises:
        UsageError: a part of it names no problem.
    """
    parts = (part.strip() for text in texts for part in text.split(","))
    chosen = {problem.id: problem for part in parts if part for problem in _part(catalogue, part)}
    if not chosen:
        raise UsageError("no problem is chosen", "--problems all, category:expert, class:B, or 1-8,13")
    return sorted(chosen.values(), key=lambda problem: problem.id)


def _part(catalogue: Catalogue, part: str) -> list[Problem]:
    word, colon, value = part.partition(":")
    if part == ALL:
        return catalogue.problems
    if colon and word == "category":
        if value not in catalogue.categories:
            raise UsageError(f"there is no category {value!r}", f"choose from {', '.join(CATEGORIES)}")
        return catalogue.categories[value]
    if colon and word == "class":
        if value not in CLASSES:
            raise UsageError(f"there is no class {value!r}", f"choose from {', '.join(CLASSES)}")
        return [problem for problem in catalogue.problems if problem.class_ == value]
    if found := _RANGE.fullmatch(part):
        first, last = (find_problem(catalogue, end).id for end in found.groups())
        return [problem for problem in catalogue.problems if first <= problem.id <= last]
    return [find_problem(catalogue, part)]


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
    source: str | None = None
    files: Files = {}
    file_name: str
    reason: str
    spent: Spent
    trace_id: str

    @property
    def kernel(self) -> Kernel | None:
        """The kernel with all its files; None: the answer has none. Its text is empty for the baseline."""
        return Kernel(self.source, self.files) if self.source is not None else None


class Unanswered(SweepLine, tag="unanswered", frozen=True, kw_only=True):
    """A player was asked and gave no answer. The provider failed, the budget was spent, or the sweep was interrupted.

    The cost counts all the same.
    """

    cell: Cell
    why: str
    spent: Spent


class CellResult(SweepLine, tag="result", frozen=True, kw_only=True):
    """A cell is judged. A later line of the same attempt on this machine replaces this one."""

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
    def record(self) -> RunRecord:
        """The report; without a run, a record without figures."""
        return self.report or view(
            RunRecord, self, self.cell, self.cell.setting,
            run_id="", kernel="", verdict=Verdict.HARNESS_ERROR, failure=None, seconds=Seconds(),
        )  # fmt: skip

    @property
    def run_id(self) -> str:
        """Id of the run that judged it; empty without a run."""
        return self.report.run_id if self.report is not None else ""

    @property
    def measurement(self) -> Measurement | None:
        """The measurement of a correct kernel; None if nothing was timed."""
        if self.report is None or self.report.interval is None or not self.passed:
            return None
        key = (self.code, self.cell.slug, self.cell.setting, self.cell.player, self.machine)
        return Measurement(msgspec.json.encode(key), self.report.interval, self.report.clock)


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
