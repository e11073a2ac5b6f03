"""The plan of a sweep: its players, problems, attempts, setting and budget."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from arena.errors import UsageError
from arena.players.player import parse_player
from arena.setting_choice import Choice, find_problem
from problems.catalogue import Catalogue
from problems.specification import CATEGORIES, CLASSES, Problem

ALL = "all"
CHANGEABLE = ("budget_usd", "seconds")
"""Fields that a resumed sweep may change: no result depends on the first, and the second only changes precision."""
_RANGE = re.compile(r"(\d+)-(\d+)")


class SweepPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a sweep, as its journal keeps it."""

    players: list[str]
    problems: list[str]
    """Slugs, in the order in which they are judged."""
    attempts: int = 1
    """Attempts of every player that is not fixed."""
    preset: str | None = None
    world: int | None = None
    device: str | None = None
    dtype: str | None = None
    sizes: dict[str, int] = {}
    rounds: int | None = None
    seconds: float | None = None
    """Time budget of one measurement; None: that of the settings."""
    budget_usd: float | None = None
    """Money limit of all sessions together."""
    other_sizes: bool = False
    """After a PASS three other settings are judged; a faster kernel is timed in two of them."""
    shots: int = 1
    """Worked examples in a model's prompt."""
    steps: int = 20
    """Kernels that an agent may have judged in one attempt."""

    @property
    def choice(self) -> Choice:
        """The requested parts of the setting."""
        return Choice(self.preset, self.world, self.device, self.dtype, self.sizes)

    def changed(self, asked: Mapping[str, Any]) -> "SweepPlan":
        """Returns the plan of a resumed sweep. asked: the fields that the command line names.

        Raises:
            UsageError: a field differs that cannot change.
        """
        differ = [name for name, value in asked.items() if not _same(value, getattr(self, name))]
        if refused := [name for name in differ if name not in CHANGEABLE]:
            options = ", ".join("--size" if name == "sizes" else "--" + name.replace("_", "-") for name in refused)
            raise UsageError(
                f"a resumed sweep cannot change {options}",
                "resume it with --name alone, or begin another sweep without --resume",
            )
        return msgspec.structs.replace(self, **{name: asked[name] for name in differ})


def _same(one: object, other: object) -> bool:
    """Whether two values of a field are equal; the order of a list does not count."""
    return set(one) == set(other) if isinstance(one, list) and isinstance(other, list) else one == other


def parse_players(text: str) -> list[str]:
    """Returns the names in `--players`, each once.

    Raises:
        UsageError: one of them names no player, or there is none.
    """
    words = [str(parse_player(word)) for word in text.split(",") if word.strip()]
    if not words:
        raise UsageError("--players names nobody", "for example --players baseline,house,model:NAME")
    return list(dict.fromkeys(words))


def choose_problems(catalogue: Catalogue, texts: Sequence[str]) -> list[Problem]:
    """The problems of a set: "all", "category:expert", "class:B", "1-8,13", names; several are joined.

    Raises:
        UsageError: a part of it names no problem.
    """
    chosen: dict[int, Problem] = {}
    for part in (part.strip() for text in texts for part in text.split(",")):
        for problem in _part(catalogue, part) if part else ():
            chosen.setdefault(problem.id, problem)
    if not chosen:
        raise UsageError("no problem is chosen", "--problems all, category:expert, class:B, or 1-8,13")
    return sorted(chosen.values(), key=lambda problem: problem.id)


def _part(catalogue: Catalogue, part: str) -> list[Problem]:
    word, colon, value = part.partition(":")
    if part == ALL:
        return catalogue.problems
    if colon and word == "category":
        if value not in catalogue.categories:
            raise UsageError(f"there is no category {value!r}", f"choose from {', '.join(CATEGORIES)}")
        return catalogue.categories[value]
    if colon and word == "class":
        if value not in CLASSES:
            raise UsageError(f"there is no class {value!r}", f"choose from {', '.join(CLASSES)}")
        return [problem for problem in catalogue.problems if problem.class_ == value]
    if found := _RANGE.fullmatch(part):
        first, last = map(int, found.groups())
        within = [problem for problem in catalogue.problems if first <= problem.id <= last]
        if not within:
            raise UsageError(f"no problem has an id from {first} to {last}", "`pkb-arena list` shows all problems")
        return within
    return [find_problem(catalogue, part)]
