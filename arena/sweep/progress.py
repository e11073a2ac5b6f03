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
    """Something that a person should know."""


@dataclass
class SweepProgress:
    """The counts of a sweep so far."""

    total: int = 0
    """Cells of the plan, without those left out."""
    done: int = 0
    """With a result, of this session or an earlier one."""
    judged: int = 0
    """In this session."""
    writing: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    """Of this session."""
    unanswered: int = 0
    """Cells whose player gave no answer."""
    left_out: str = ""
    """Why the last of those that were left out cannot be played."""
    stopped: str = ""
    """Why the sweep ended early; empty while it did not."""

    @property
    def whole(self) -> bool:
        """Every cell has a result."""
        return self.done >= self.total
