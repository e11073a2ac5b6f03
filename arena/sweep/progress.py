"""The progress of a sweep, and its listeners."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

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
