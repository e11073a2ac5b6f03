"""The cells of a sweep: all of them, those that are left out, and those that have a result already."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from arena.errors import UsageError
from arena.players.player import Player, Task
from arena.setting_choice import choose_setting
from arena.settings import Settings
from arena.sweep import records
from arena.sweep.journal import SweepJournal
from arena.sweep.plan import SweepPlan
from arena.sweep.queue import KernelJob
from arena.sweep.records import Cell, CellResult
from problems.specification import Problem


@dataclass
class Listener:
    """Callbacks of a sweep. They are called in the event loop and must not block."""

    judged: Callable[[CellResult], None] = lambda result: None
    skipped: Callable[[Cell], None] = lambda cell: None
    """The cell has a result already."""
    left_out: Callable[[Problem, str, str], None] = lambda problem, player, why: None
    """The player cannot play this problem: all its attempts are left out."""
    said: Callable[[str], None] = lambda text: None
    """A message for the user."""


@dataclass
class SweepProgress:
    """The counts of a sweep so far."""

    total: int = 0
    """Cells of the plan, without those left out."""
    done: int = 0
    """Cells with a result, of this session or an earlier one."""
    judged: int = 0
    """Cells judged in this session."""
    writing: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    """Verdicts of this session, with their numbers."""
    unanswered: int = 0
    """Cells whose player gave no answer."""
    left_out: str = ""
    """Why the newest left-out player cannot play its problem; empty if none was left out."""
    stopped: str = ""
    """Why the sweep ended early; empty if it did not."""

    @property
    def whole(self) -> bool:
        """Whether every cell has a result."""
        return self.done >= self.total


class Cells:
    """The cells of one session."""

    def __init__(
        self,
        plan: SweepPlan,
        problems: Sequence[Problem],
        players: Sequence[Player],
        settings: Settings,
        journal: SweepJournal,
        machines: Iterable[str],
        progress: SweepProgress,
        listener: Listener,
    ) -> None:
        """machines: fingerprints of the workers' machines. A result from any of them counts."""
        self._plan = plan
        self._problems = problems
        self._players = players
        self._settings = settings
        self._journal = journal
        self._machines = list(dict.fromkeys(machines))
        self._progress = progress
        self._listener = listener
        self._left_out: set[tuple[str, str]] = set()
        progress.total = len(problems) * sum(1 if player.fixed else plan.attempts for player in players)

    def jobs(self, fixed: bool) -> Iterator[KernelJob]:
        """Yields all cells of fixed players, or of players who write, problem by problem."""
        for problem in self._problems:
            players = [player for player in self._players if player.fixed is fixed]
            if not players:
                return
            try:
                setting = choose_setting(problem, self._plan.choice, self._settings)
            except UsageError as error:
                for player in players:
                    self.leave_out(problem, player, error.message)
                continue
            version = records.version_of(problem)
            for player in players:
                for attempt in range(1, 2 if fixed else self._plan.attempts + 1):
                    cell = records.Cell(
                        slug=problem.slug,
                        setting=msgspec.structs.replace(setting, problem_dir=""),
                        player=str(player.name),
                        attempt=attempt,
                        catalogue=version,
                    )
                    yield KernelJob(cell, Task(problem, setting, attempt), player, None)

    def leave_out(self, problem: Problem, player: Player, why: str) -> None:
        """Leaves out all attempts of a player at a problem."""
        name = str(player.name)
        if (problem.slug, name) not in self._left_out:
            self._left_out.add((problem.slug, name))
            self._progress.total -= 1 if player.fixed else self._plan.attempts
            self._progress.left_out = why
            self._listener.left_out(problem, name, why)

    def is_left_out(self, cell: records.Cell) -> bool:
        """Whether the cell's player was left out at its problem."""
        return (cell.slug, cell.player) in self._left_out

    def skip_done(self, cell: records.Cell, sha256: str) -> bool:
        """Whether the journal has a result of this kernel. If so, counts the cell as done."""
        done = any(self._journal.is_done(cell.key(sha256, machine)) for machine in self._machines)
        if done:
            self._progress.done += 1
            self._listener.skipped(cell)
        return done
