"""The judged attempts of a player as a few numbers each, and the scores over all problems, a category or a class."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from arena.board.definitions import FACTORS, Score, against_bound, geometric_mean, is_fast, pass_at_k
from arena.machine.facts import Machine
from arena.players.player import MCP, PlayerKind
from arena.records.ranking import Measurement, Ranked, ranked
from arena.records.run_record import RunRecord, fields_of, view
from arena.records.voids import Voids
from arena.sweep.journal import read_lines
from arena.sweep.records import REFUSED, CellResult, SweepSession
from arena.words.headline import by_clock
from arena.workspace.named_kernels import GRAPH, HOUSE, NAMED

MODELS, AGENTS, PEOPLE, HOUSES, BASELINES = "model", "agent", "person", "house", "baseline"
NOISY = "too noisy"
"""The outcome if times are too noisy. It counts as not fast, and is left out of means."""


class ResultPlace(msgspec.Struct, frozen=True):
    """The setting and the machine of results that can be compared with each other."""

    preset: str
    """Name of the preset, also if sizes were overridden."""
    device: str
    world: int
    machine: str
    """A fingerprint (`arena.machine.facts`)."""
    source: str = ""
    """Name of the imported bundle with the results; empty: made here."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of one player at one problem."""

    player: str
    kind: str
    place: ResultPlace
    problem_id: int
    category: str
    class_: str
    passed: bool
    paper: bool | None = None
    """Whether the kernel is correct by the publication's rule (atol = rtol = 1e-2); None: not stored."""
    faster: bool
    """Whether the kernel is correct, and faster than the baseline by the whole 99 % interval."""
    speedup: float | None = None
    """Speedup over the baseline as called, by the headline's clock; None without one, or if times were too noisy."""
    over_graph: float | None = None
    """Speedup over the baseline in a CUDA graph, by the same clock."""
    percent: float | None = None
    """Percent of the roofline's bound."""
    gap_closed: float | None = None
    """Share of the gap between the baseline and that bound (`RunRecord.gap_closed`)."""
    noisy: bool = False
    """Whether the kernel is correct and its times were too noisy."""
    one_size_only: bool | None = None
    """Whether the kernel failed at other sizes; None: not known."""
    usd: float = 0.0
    seconds: float = 0.0
    voided: bool = False
    """Whether the result is voided. It then counts as a failed attempt."""
    backend: str = ""
    """Label of the backend that a correct kernel uses; empty: none."""
    holds: str = ""
    """Other sizes at which a faster kernel is faster, too: "all", "some" or "none"; empty if not known."""


def kind_of(player: str) -> str:
    """Returns the kind of a player by its name: `MODELS`, `AGENTS`, `PEOPLE`, `HOUSES` or `BASELINES`."""
    prefix = player.partition(":")[0]
    if prefix == PlayerKind.MODEL:
        return MODELS
    if prefix == PlayerKind.AGENT or player == MCP:
        return AGENTS
    if player == HOUSE:
        return HOUSES
    return BASELINES if player in NAMED else PEOPLE


def outcome_of(result: CellResult, source: str = "", voided: bool = False) -> Outcome:
    """Returns the outcome of a sweep's result."""
    record, setting = result.record, result.cell.setting
    passed = result.passed and not voided
    noisy = passed and record.outcome == NOISY
    times: dict[str, float | None] = {}
    if passed and not noisy:
        times = fields_of(record, "percent gap_closed") | {"speedup": record.median, "over_graph": _over_graph(record)}
    return view(
        Outcome, result, result.cell, result.spent,
        kind=kind_of(result.cell.player),
        place=ResultPlace(setting.preset, setting.device, setting.world, result.machine, source),
        passed=passed,
        paper=record.paper_rule == "match" and not voided,
        faster=passed and record.outcome == "faster",
        noisy=noisy,
        one_size_only=record.one_size_only if record.tried_other_sizes and not voided else None,
        voided=voided,
        backend=record.backend if passed else "",
        holds="" if voided else record.holds_at_other_sizes or "",
        **times,
    )  # fmt: skip


def _over_graph(record: RunRecord) -> float | None:
    """Returns the time of the baseline in a CUDA graph, measured before in this setting, over the kernel's time."""
    there, here = by_clock(record.beside.get(GRAPH), record.clock), record.time_us
    return there / here if there and here else None


def results(path: Path) -> Iterator[CellResult]:
    """Returns all lines with a result, in order. Those that a later line replaces are among them.

    Raises as `read_lines`.
    """
    return (line for line in read_lines(path) if isinstance(line, CellResult))


def outcomes(path: Path, voids: Voids, source: str = "") -> list[Outcome]:
    """Returns the results that count in scores: verdicts on kernels, and answers without a kernel.

    Harness errors and refused settings do not count. A voided result counts as a failed attempt. Of several results of an attempt
    on one machine the last one counts: the kernel's file, or the problem, has changed.

    Raises as `results`.
    """
    newest: dict[tuple[str, str], tuple[Outcome, Measurement | None]] = {}
    for result in results(path):
        if result.final and result.verdict != REFUSED:
            voided = voids.of(result.run_id, result.code) is not None
            cell = msgspec.structs.replace(result.cell, catalogue="")
            measurement = None if voided else result.measurement
            newest[cell.digest, result.machine] = outcome_of(result, source, voided), measurement
    found = [outcome for outcome, measurement in newest.values() if measurement is None]
    for kernel in ranked(newest.values(), lambda pair: pair[1]):
        found += [_pooled(outcome, kernel) for outcome, _ in kernel.items]
    return found


def _pooled(outcome: Outcome, kernel: Ranked[tuple[Outcome, Measurement | None]]) -> Outcome:
    """Returns an attempt with the pooled figures of all attempts with the same code, because one code has one speed."""
    if len(kernel.items) == 1:
        return outcome
    noisy, faster = kernel.outcome == NOISY, kernel.outcome == "faster"
    times = fields_of(kernel.item[0], "percent gap_closed over_graph") | {"speedup": kernel.speedup.median}
    shown = dict.fromkeys(times) if noisy else times
    holds = outcome.holds if faster else ""
    return msgspec.structs.replace(outcome, faster=faster, noisy=noisy, holds=holds, **shown)


def machines_of(path: Path) -> dict[str, Machine]:
    """Returns the machines of a sweep by their fingerprints. Raises as `results`."""
    return {each.digest: each for line in read_lines(path) if isinstance(line, SweepSession) for each in line.machines}


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
    """fast_p at one attempt over the baseline as called, by p: "0.5", "1", "1.5", "2", "3"."""
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
    means = [geometric_mean([o.speedup for o in each if o.passed and o.speedup]) for each in held]
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
        speedup=geometric_mean([mean.value for mean in means if mean is not None]),
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
