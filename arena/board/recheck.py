"""Judges stored best kernels again with the current judge: each player's best one by problem and setting."""

import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from arena.board.scorecard import AGENTS, MODELS, NOISY, kind_of
from arena.errors import ArenaError, RunRefused, UsageError, why
from arena.machine.facts import installed_version, require_jail, this_machine
from arena.paths import Paths
from arena.records.header import read_header
from arena.records.json_lines import append_line
from arena.records.ranking import fastest
from arena.records.run_record import BriefResult, RunRecord, fields_of, view
from arena.records.voids import Void, clean_note
from arena.runs.judge import Judge, RunRequest
from arena.setting_choice import Choice, choose_setting, find_problem
from arena.settings import Settings
from arena.sweep.queue import Worker, WorkerLost, judge_at
from arena.sweep.sweep import LOST
from problems.catalogue import Catalogue
from sandbox.protocol.events import Interval
from sandbox.protocol.verdict import Verdict

FAILS, SLOWER, FASTER = "fails", "no longer faster", "faster now"


class RecheckSide(BriefResult, frozen=True, kw_only=True):
    """One verdict on a kernel, with its speedup. Fields are added, never renamed."""

    speedup: Interval | None


class Recheck(msgspec.Struct, frozen=True, kw_only=True):
    """A stored best, judged again. Fields are added, never renamed."""

    player: str
    problem: str
    id: int
    preset: str
    device: str
    world: int
    dtype: str
    sha256: str
    code: str
    before: RecheckSide
    """The stored result, with all measurements of its code pooled."""
    after: RecheckSide | None
    """The new result; None: the kernel was not judged."""
    change: str = ""
    """FAILS, SLOWER or FASTER; empty if nothing changed, or times cannot be compared."""
    compared: bool = False
    """Whether the speeds were compared. They are not if one is too noisy, not timed or of another machine."""
    left_out: str = ""
    """Why the kernel was not judged; empty if it was."""
    voided: list[str] = []
    """Runs that were voided because it fails."""

    @property
    def failed(self) -> bool:
        """Whether the kernel, which passed before, fails now."""
        return self.change == FAILS


def bests(entries: Iterable[RunRecord]) -> list[list[RunRecord]]:
    """Returns a player's correct kernels by problem and setting, in each list the best first, one entry per kernel.

    Kernels that were not timed, or whose times were too noisy, come last, the newest first. Voided runs are left out.
    """
    groups: dict[tuple[object, ...], list[RunRecord]] = {}
    for entry in entries:
        if _counts(entry):
            groups.setdefault(_setting(entry), []).append(entry)
    found = []
    for _, group in sorted(groups.items(), key=lambda pair: str(pair[0])):
        kernels: dict[str, RunRecord] = {}
        for entry in (*fastest(group), *sorted(group, key=lambda entry: -entry.created)):
            kernels.setdefault(entry.code, entry)
        found.append(list(kernels.values()))
    return found


@dataclass
class Rechecker:
    """Judges best kernels again with a judge of this machine."""

    judge: Judge
    paths: Paths
    catalogue: Catalogue
    settings: Settings
    rounds: int | None = None
    budget_s: float = 2.5
    void_by: str = ""
    """Name in which the results of a best kernel that fails are voided; empty: they are not voided."""
    unsafe: bool = False
    harness_errors: int = 0
    """Harness errors in a row."""

    async def start(self, players: Iterable[str]) -> None:
        """Starts the judge.

        Raises:
            MachineError: a model's kernel would run without a jail, or the judge cannot be started.
        """
        await self.judge.start()
        if any(kind_of(player) in (MODELS, AGENTS) for player in players):
            require_jail(self.judge.jail, self.unsafe)

    async def recheck(self, kernels: Sequence[RunRecord], runs: Iterable[RunRecord]) -> AsyncIterator[Recheck]:
        """Judges the best of `kernels` (one list of `bests`). If failures are voided, goes on until one does not fail.

        runs: all runs of the player, including those to void.

        Raises:
            WorkerLost: the judge has failed too often.
            FolderUnwritable: the journal of a run or of the voids cannot be written.
        """
        for entry in kernels:
            found = await self._judge(entry)
            if found.failed and self.void_by:
                found = msgspec.structs.replace(found, voided=self._void(entry, found, runs))
            yield found
            if not found.voided:
                return

    async def _judge(self, entry: RunRecord) -> Recheck:
        worker = Worker("local", self.judge, this_machine(entry.device))
        try:
            request = self._request(entry)
        except (ArenaError, OSError, ValueError) as error:
            unread = f"the journal of run {entry.run_id} cannot be read: {why(error)}"
            return _made(entry, left_out=error.message if isinstance(error, ArenaError) else unread)
        try:
            report = (await judge_at(worker, request))[0].report
        except RunRefused as error:
            return _made(entry, left_out=error.message)
        if report.verdict is not Verdict.HARNESS_ERROR:
            self.harness_errors = 0
            return _made(entry, report, worker.machine.digest)
        self.harness_errors += 1
        if self.harness_errors >= LOST:
            raise WorkerLost(f"{LOST} harness errors in a row, the last one: {report.detail}", "see `pkb-arena doctor`")
        return _made(entry, left_out=f"harness error: {report.detail}")

    def _request(self, entry: RunRecord) -> RunRequest:
        header = read_header(self.paths.runs / f"{entry.run_id}.jsonl")
        problem = find_problem(self.catalogue, str(entry.problem_id))
        if problem.slug != entry.slug:
            raise UsageError(f"problem {entry.problem_id} is another one now: {problem.slug}")
        choice = Choice(**fields_of(entry, "preset world device dtype"))
        kept = fields_of(header, "kernel_name kernel_path source files player") | fields_of(self, "rounds budget_s")
        return RunRequest(problem=problem, setting=choose_setting(problem, choice, self.settings), **kept)

    def _void(self, entry: RunRecord, found: Recheck, runs: Iterable[RunRecord]) -> list[str]:
        """Voids the player's results of this code in this setting. Returns the ids of their runs."""
        assert found.after is not None
        version = installed_version("pkb-arena") or ""
        note = f"recheck by pkb-arena {version}: {found.after.verdict}: {found.after.detail}"
        same = [
            run.run_id for run in runs if _counts(run) and _setting(run) == _setting(entry) and run.code == entry.code
        ]
        for run in same:
            line = Void(at=time.time(), note=clean_note(note), by=clean_note(self.void_by), run=run)
            append_line(self.paths.voids, line)
        return same


def _counts(entry: RunRecord) -> bool:
    return entry.passed and entry.is_ranked and not entry.voided


def _setting(entry: RunRecord) -> tuple[object, ...]:
    return (entry.problem_id, entry.preset, entry.device, entry.world, entry.dtype)


def _made(entry: RunRecord, report: RunRecord | None = None, machine: str = "", left_out: str = "") -> Recheck:
    before = view(RecheckSide, entry, speedup=entry.interval)
    after = view(RecheckSide, report, speedup=report.interval) if report is not None else None
    same_machine = entry.machine == machine
    return view(
        Recheck, entry,
        problem=entry.slug, id=entry.problem_id, before=before, after=after,
        change=_change(before, after, same_machine) if after is not None else "",
        compared=after is not None and _comparable(before, after, same_machine),
        left_out=left_out, voided=[],
    )  # fmt: skip


def _change(before: RecheckSide, after: RecheckSide, same_machine: bool) -> str:
    if not after.passed:
        return FAILS
    if not _comparable(before, after, same_machine) or (before.outcome == "faster") == (after.outcome == "faster"):
        return ""
    return FASTER if after.outcome == "faster" else SLOWER


def _comparable(before: RecheckSide, after: RecheckSide, same_machine: bool) -> bool:
    both = (before, after)
    return same_machine and all(side.passed and side.outcome not in ("", NOISY) for side in both)
