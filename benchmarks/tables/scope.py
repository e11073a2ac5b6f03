"""The requested part of a table, where its lines go, and its conclusion."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from problems.catalogue import load_catalogue
from problems.specification import Problem

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Scope:
    """The requested part of a table; empty or None: the table's own choice."""

    problems: tuple[Problem, ...] = ()
    table: str = ""
    """The table's name: a module may have several."""
    blocks: tuple[str, ...] = ()
    """Blocks of the kit's soak, by name."""
    world: int | None = None
    preset: str | None = None
    device: str | None = None
    repetitions: int | None = None
    """Runs of each kind; in tables that make one run of each kind, rounds of a run."""
    loaded: bool = False
    """Whether it runs beside a busy process on every core."""

    def problems_or(self, numbers: Sequence[int] = ()) -> Sequence[Problem]:
        """The requested problems; else those with these numbers, or all."""
        catalogue = load_catalogue()
        return self.problems or [catalogue.find(str(number)) for number in numbers] or catalogue.problems


@dataclass(frozen=True)
class Conclusion:
    """The conclusion from the rows of a table."""

    lines: list[str]
    sound: bool
    """Whether no row shows a fault of pkb-arena."""
