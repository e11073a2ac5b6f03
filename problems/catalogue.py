"""All problems: the benchmark's and a user's own."""

import difflib
import re
from collections.abc import Iterable
from pathlib import Path

from problems.specification import CATEGORIES, Problem, ProblemError, load_problem

HOME = Path(__file__).parent
SUGGESTED = 4
"""Most names that the message for an unknown name suggests."""


class UnknownProblem(LookupError):
    """No problem has that name; the message suggests the nearest names."""


class Catalogue:
    """All problems by id and by category, and the errors of folders that could not be read (`broken`)."""

    def __init__(self, problems: Iterable[Problem], broken: Iterable[ProblemError] = ()) -> None:
        self.problems = sorted(problems, key=lambda problem: problem.id)
        self.broken = list(broken)
        self.categories: dict[str, list[Problem]] = {
            category: found
            for category in CATEGORIES
            if (found := [problem for problem in self.problems if problem.category == category])
        }
        self._by_name: dict[str, Problem] = {}
        for problem in self.problems:
            for name in (str(problem.id), f"{problem.id:02d}", problem.slug, problem.stem):
                self._by_name.setdefault(name.lower(), problem)

    def find(self, name: str) -> Problem:
        """The problem with this id (13), slug (gemm_allreduce) or upstream stem (13_gemm_allreduce).

        Raises:
            UnknownProblem: no problem has that name; the message suggests the nearest names.
        """
        found = self._by_name.get(name.strip().lower())
        if found is not None:
            return found
        raise UnknownProblem(f"there is no problem {name!r}: {self._hint(name.strip().lower())}")

    def _hint(self, name: str) -> str:
        """Suggests problems for an unknown name. Numbers get no near matches: 99 is no misspelling of 9."""
        everything = "`pkb-arena list` shows all problems"
        if name.isdecimal():
            ids = [problem.id for problem in self.problems]
            return f"ids go from {min(ids)} to {max(ids)}; {everything}" if ids else everything
        slugs = [problem.slug for problem in self.problems]
        name = re.sub(r"^\d+_", "", name)  # keep the slug of a stem
        holding = [slug for slug in slugs if name and name in slug]
        near = holding or difflib.get_close_matches(name, slugs, n=SUGGESTED, cutoff=0.5)
        if not near:
            return everything
        rest = f", or one of {len(near) - SUGGESTED} more" if len(near) > SUGGESTED else ""
        return f"did you mean {', '.join(near[:SUGGESTED])}{rest}?"


def load_catalogue(extra: Iterable[Path] = ()) -> Catalogue:
    """Loads the benchmark's problems and those in the given folders (each a problem folder or a folder of them).

    Errors of broken folders are collected in `broken`; the other folders load. A user's problem needs a new id and
    slug.
    """
    broken: list[ProblemError] = []
    folders = sorted(path.parent for path in HOME.glob("*/*/problem.toml"))
    for root in extra:
        if not root.is_dir():
            broken.append(ProblemError(f"{root}: there is no such folder; problem_dirs in the settings names it"))
        elif (root / "problem.toml").exists():
            folders.append(root)
        else:
            folders.extend(sorted(path.parent for path in root.glob("**/problem.toml")))
    problems: list[Problem] = []
    taken: dict[str, Path] = {}
    for folder in folders:
        try:
            problem = load_problem(folder)
            for name in (str(problem.id), problem.slug):
                if name in taken:
                    raise ProblemError(f"{folder}: {name} is taken by {taken[name]}; choose another id and slug")
        except ProblemError as error:
            broken.append(error)
            continue
        taken[str(problem.id)] = taken[problem.slug] = folder
        problems.append(problem)
    return Catalogue(problems, broken)
