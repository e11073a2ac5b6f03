"""The house's kernels: those that pkb-arena brings along."""

from arena.errors import UsageError
from problems.catalogue import Catalogue
from problems.specification import Problem

HOUSE = "house"
"""The player's name, and the word for its kernel."""


def house_source(problem: Problem, catalogue: Catalogue) -> str:
    """The house's kernel for a problem.

    Raises:
        UsageError: there is none.
    """
    source = problem.house_source
    if source is None:
        known = ", ".join(str(other.id) for other in catalogue.problems if other.house_source is not None)
        raise UsageError(
            f"the house has no kernel for {problem.id} {problem.slug}", f"it has some for {known}"
        )
    return source
