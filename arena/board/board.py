"""The board: every player's best results by problem, counted by category and speedup."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from arena.board.definitions import AgainstBound, against_bound, is_fast
from arena.records.ranking import Standing
from problems.specification import Problem

FACTORS = (0.0, 0.5, 1.0, 2.0, 3.0)
"""The values of p in fast_p: correct, and more than p times as fast as the baseline. 0: correct at any speed."""
FIRST = ("you", "house")
PRINTED_PROBLEMS = 87
"""Number of problems behind the printed totals. The printed categories add up to 86."""
_PUBLISHED = Path(__file__).with_name("published.toml")

Standings = dict[int, Standing]
"""Standings of one player, by problem id."""


@dataclass(frozen=True)
class Tally:
    """Counts of one player in some problems."""

    solved: int
    faster: int
    problems: int


class PrintedTotals(msgspec.Struct, frozen=True):
    """Totals as they were printed. The sums of the rows differ from them by up to 3."""

    solved_1: int
    """With one attempt."""
    solved: int
    """Best of three."""
    faster_1: int
    faster: int


class PublishedModel(msgspec.Struct, frozen=True):
    """A model's published results."""

    name: str
    printed: PrintedTotals
    solved: list[int]
    """By category, in the order of `Published.problems`; best of three attempts."""
    faster: list[int]
    solved_1: list[int]
    """The same with one attempt."""
    faster_1: list[int]
    curve: list[float]
    """Share of all problems at each of FACTORS."""


class PublishedAgent(msgspec.Struct, frozen=True):
    """The published results of a model that improved its kernels after reading their verdicts."""

    name: str
    solved: int
    faster: int


class Published(msgspec.Struct, frozen=True):
    """Results that others have published for the same problems, from another machine."""

    source: str
    problems: dict[str, int]
    """Number of problems by category, as the source counts them."""
    model: list[PublishedModel]
    agent: list[PublishedAgent] = []

    def tally(self, model: PublishedModel, category: str) -> Tally:
        """Returns a model's counts in one category; the printed totals if `category` is empty."""
        if not category:
            return Tally(model.printed.solved, model.printed.faster, PRINTED_PROBLEMS)
        at = list(self.problems).index(category)
        return Tally(model.solved[at], model.faster[at], self.problems[category])


def read_published() -> Published:
    """Reads the published results that come with the arena."""
    return msgspec.convert(tomllib.loads(_PUBLISHED.read_text(encoding="utf-8")), Published)


def order_of(players: Sequence[str]) -> list[str]:
    """Sorts players: `you` and `house` first, then the others by name."""
    return [*(name for name in FIRST if name in players), *sorted(set(players) - set(FIRST))]


def tally(standings: Standings, problems: Sequence[Problem]) -> Tally:
    """Counts the problems that a player has solved, and those with a kernel whose whole interval is above 1."""
    held = [standings[problem.id] for problem in problems if problem.id in standings]
    return Tally(sum(each.solved for each in held), sum(each.faster for each in held), len(problems))


def bound_scores(standings: Standings, problems: Sequence[Problem]) -> AgainstBound:
    """Returns the scores against the hardware of a player's best kernels in these problems."""
    best = [standings[problem.id].best for problem in problems if problem.id in standings]
    timed = [entry for entry in best if entry is not None]
    return against_bound(
        [[(entry.percent, entry.gap_closed)] for entry in timed],
        no_roofline=sum(entry.percent is None for entry in timed),
    )


def fast_p(standings: Standings, problems: Sequence[Problem], p: float) -> float:
    """Returns the share of the problems for whose best kernel `is_fast` is true."""
    held = [standings[problem.id] for problem in problems if problem.id in standings]
    good = sum(is_fast(each.best.median if each.best else None, each.solved, p) for each in held)
    return good / len(problems) if problems else 0.0
