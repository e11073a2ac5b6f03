"""All problems: the benchmark's and a user's own."""

import difflib
from collections.abc import Iterable
from pathlib import Path

from problems.specification import CATEGORIES, Problem, ProblemError, load_problem

HOME = Path(__file__).parent


class UnknownProblem(LookupError):
    """No problem of that name; the message offers the nearest."""


class Catalogue:
    """Problems by id, in the order of the categories, with the folders that could not be read beside them."""

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
            UnknownProblem: there is none; the message names the nearest.
        """
        found = self._by_name.get(name.strip().lower())
        if found is not None:
            return found
        near = difflib.get_close_matches(name.lower(), self._by_name, n=3, cutoff=0.5)
        slugs = list(dict.fromkeys(self._by_name[match].slug for match in near))
        hint = f"did you mean {', '.join(slugs)}?" if slugs else "`pkb-arena list` shows all problems"
        raise UnknownProblem(f"no problem {name!r}: {hint}")


def load_catalogue(extra: Iterable[Path] = ()) -> Catalogue:
    """The benchmark's problems and those in the given folders (each a problem folder or a folder of them).

    Broken folders do not stop the others: they are listed in `broken`. A user's problem may not take an id or slug that
    exists already.
    """
    folders = sorted(path.parent for path in HOME.glob("*/*/problem.toml"))
    for root in extra:
        if (root / "problem.toml").exists():
            folders.append(root)
        else:
            folders.extend(sorted(path.parent for path in root.glob("**/problem.toml")))
    problems: list[Problem] = []
    broken: list[ProblemError] = []
    taken: dict[str, Path] = {}
    for folder in folders:
        try:
            problem = load_problem(folder)
            for name in (str(problem.id), problem.slug):
                if name in taken:
                    raise ProblemError(
                        f"{folder}: {name} is taken by {taken[name]}; choose another id and slug"
                    )
        except ProblemError as error:
            broken.append(error)
            continue
        taken[str(problem.id)] = taken[problem.slug] = folder
        problems.append(problem)
    return Catalogue(problems, broken)
