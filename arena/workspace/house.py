"""House kernels: the kernels that pkb-arena ships."""

from arena.errors import UsageError
from problems.catalogue import Catalogue
from problems.specification import Problem

HOUSE = "house"
"""The player's name, and the word for its kernel."""


def house_source(problem: Problem, catalogue: Catalogue) -> str:
    """The source of a problem's house kernel.

    Raises:
        UsageError: there is none.
    """
    source = problem.house_source
    if source is None:
        known = ", ".join(str(other.id) for other in catalogue.problems if other.house_source is not None)
        raise UsageError(
            f"there is no house kernel for {problem.id} {problem.slug}", f"there are house kernels for {known}"
        )
    return source
