"""The part of a table that was asked for, and where its lines go."""

from collections.abc import Callable
from dataclasses import dataclass

from problems.specification import Problem

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Scope:
    """What a table is narrowed down to; empty or None: the table's own choice."""

    problems: tuple[Problem, ...] = ()
    blocks: tuple[str, ...] = ()
    """Of the kit's soak, by name."""
    world: int | None = None
    preset: str | None = None
    device: str | None = None
    repetitions: int | None = None
    """Runs of each kind; in the tables that make one run of each kind, rounds a run."""
    loaded: bool = False
    """Beside a busy process on every core."""


@dataclass(frozen=True)
class Conclusion:
    """What the rows of a table come to."""

    lines: list[str]
    sound: bool
    """No row shows a fault of pkb-arena."""
