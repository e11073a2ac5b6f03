"""The scores of one player in one place, over all its problems or over those of a category or a class."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from arena.board.definitions import Score, against_bound, geometric_mean, is_fast, pass_at_k
from arena.board.outcomes import Outcome, ResultPlace
from arena.records.run_record import view

FACTORS = (1.0, 1.5, 2.0)
"""The values of p in fast_p."""
ALL = "all"
HOLDS = ("all", "some", "none")
"""In how many of the other settings a faster kernel is faster, too."""


class Scorecard(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a board. Scores are None if nothing was measured for them."""

    player: str
    kind: str
    place: ResultPlace
    scope: str = ALL
    """ "all", "category:expert" or "class:B"."""
    problems: int
    attempts: int
    """Number of attempts at all problems together."""
    most_attempts: int
    """The k of the best-of-k scores: the number of attempts that every problem has at least."""
    solved: int
    """Problems with at least one correct kernel."""
    faster: int
    """Problems with at least one correct kernel that is faster by its whole 99 % interval."""
    pass_1: Score | None
    pass_k: Score | None
    paper_1: Score | None
    """pass@1 by the publication's rule of correctness (atol = rtol = 1e-2) in place of this arena's."""
    fast: dict[str, Score]
    """fast_p at one attempt over the baseline as called, by p: "1", "1.5", "2"."""
    fast_k: dict[str, Score]
    """The same at k attempts."""
    fast_graph: dict[str, Score]
    """fast_p at one attempt over the baseline in a CUDA graph; empty if that was not measured."""
    speedup: Score | None
    """Geometric mean over the solved problems. Each counts with the geometric mean of its correct kernels' speedups."""
    percent: Score | None
    """Percent of the roofline's bound (`arena.board.definitions.AgainstBound`)."""
    gap_closed: Score | None
    """Share of the gap between the baseline and that bound; from 0 to 1."""
    no_roofline: int
    """Correct kernels without a roofline, which are left out of `percent` and `gap_closed`."""
    noisy: int
    """Correct kernels whose times were too noisy. They count as not fast, and in no mean."""
    one_size_only: int
    """Correct kernels that failed at other sizes."""
    usd: float
    voided: int = 0
    """Voided attempts, which count as failed."""
    backends: dict[str, int] = {}
    """Number of correct kernels that use a backend, by its label."""
    holds: dict[str, int] = {}
    """Number of faster kernels that are faster at "all", "some" or "none" of the other sizes."""


def scorecard(outcomes: Sequence[Outcome], scope: str = ALL) -> Scorecard:
    """Returns the scores of at least one outcome, all of one player in one place."""
    first = outcomes[0]
    by_problem: dict[int, list[Outcome]] = {}
    for outcome in outcomes:
        by_problem.setdefault(outcome.problem_id, []).append(outcome)
    held = list(by_problem.values())
    k = min(map(len, held))
    on_paper = [each for each in held if all(outcome.paper is not None for outcome in each)]
    on_graph = [each for each in held if any(outcome.over_graph for outcome in each)]

    def fast(p: float, at: int) -> Score | None:
        return pass_at_k(at, [_count(each, [is_fast(o.speedup, o.passed, p) for o in each]) for each in held])

    def fast_graph(p: float) -> Score | None:
        return pass_at_k(1, [_count(each, [is_fast(o.over_graph, o.passed, p) for o in each]) for each in on_graph])

    right = [_count(each, [outcome.passed for outcome in each]) for each in held]
    told = [[outcome for outcome in each if outcome.passed and not outcome.noisy] for each in held]
    bound = against_bound(
        [[(o.percent, o.gap_closed) for o in each] for each in told],
        no_roofline=sum(outcome.percent is None for each in told for outcome in each),
    )
    return view(
        Scorecard, bound, first,
        scope=scope,
        problems=len(held),
        attempts=len(outcomes),
        most_attempts=k,
        solved=sum(good > 0 for _, good in right),
        faster=sum(any(outcome.faster for outcome in each) for each in held),
        pass_1=pass_at_k(1, right),
        pass_k=pass_at_k(k, right),
        paper_1=pass_at_k(1, [_count(each, [bool(outcome.paper) for outcome in each]) for each in on_paper]),
        fast=_by_factor(lambda p: fast(p, 1)),
        fast_k=_by_factor(lambda p: fast(p, k)),
        fast_graph=_by_factor(fast_graph),
        speedup=_mean_of_problems([[o.speedup for o in each if o.passed] for each in held]),
        noisy=sum(outcome.noisy for outcome in outcomes),
        one_size_only=sum(bool(outcome.one_size_only) for outcome in outcomes),
        usd=sum(outcome.usd for outcome in outcomes),
        voided=sum(outcome.voided for outcome in outcomes),
        backends=dict(sorted(Counter(outcome.backend for outcome in outcomes if outcome.backend).items())),
        holds={held: count for held in HOLDS if (count := sum(outcome.holds == held for outcome in outcomes))},
    )  # fmt: skip


def _count(outcomes: Sequence[Outcome], good: Sequence[bool]) -> tuple[int, int]:
    return len(outcomes), sum(good)


def _by_factor(score: Callable[[float], Score | None]) -> dict[str, Score]:
    return {f"{p:g}": found for p in FACTORS if (found := score(p)) is not None}


def _mean_of_problems(values: Iterable[Sequence[float | None]]) -> Score | None:
    means = [geometric_mean([value for value in each if value]) for each in values]
    return geometric_mean([mean.value for mean in means if mean is not None])


def scorecards(outcomes: Iterable[Outcome]) -> list[Scorecard]:
    """Returns a card for every player in every place, best pass@1 first; then the cards by category and class."""
    groups: dict[tuple[str, ResultPlace], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.player, outcome.place), []).append(outcome)
    cards = []
    for group in groups.values():
        cards.append(scorecard(group))
        for scope in ("category", "class"):
            cards += [scorecard(found, f"{scope}:{name}") for name, found in sorted(_split(group, scope).items())]
    return sorted(cards, key=_order)


def _split(outcomes: Sequence[Outcome], scope: str) -> dict[str, list[Outcome]]:
    parts: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        parts.setdefault(outcome.category if scope == "category" else outcome.class_, []).append(outcome)
    return parts


def _order(card: Scorecard) -> tuple[object, ...]:
    place = card.place
    where = (place.source, place.preset, place.device, place.world, place.machine)
    best = -(card.pass_1.value if card.pass_1 is not None else 0.0)
    return (card.scope != ALL, card.scope, where, best, -card.faster, card.player)
