"""Gathers a board from sweeps, single runs, duels, imported bundles and the publication."""

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from arena.board.definitions import PRINTED_PROBLEMS, Published, Score, read_published, share
from arena.board.scorecard import (
    AGENTS,
    ALL,
    MODELS,
    Outcome,
    ResultPlace,
    Scorecard,
    kind_of,
    machines_of,
    outcomes,
    scorecards,
)
from arena.duel.journal import ALL as ALL_DUELS
from arena.duel.journal import Rating, damage, ratings, read_duels
from arena.errors import StoreError
from arena.machine.facts import installed_version, this_machine
from arena.paths import Paths
from arena.records.index import Store, stored
from arena.records.ranking import fastest, holds_elsewhere
from arena.records.run_record import BriefResult, RunRecord, fields_of, view
from arena.records.voids import DAMAGED_ADVICE, VOIDS_SUFFIX, read_voids
from arena.sweep.journal import JournalDamaged, chosen_journals, journals
from problems.catalogue import Catalogue
from problems.specification import Problem
from sandbox.protocol.events import Interval
from sandbox.protocol.verdict import Verdict


class Comparison(BriefResult, frozen=True, kw_only=True):
    """The result of a run that compares a kernel with the one that its player started from."""

    player: str
    problem_id: int
    preset: str
    preset_sizes: bool
    device: str
    world: int
    machine: str
    code: str
    """Hash of the kernel's code (`arena.records.code_hash`)."""
    origin: str
    """SHA-256 of the kernel that it started from."""
    origin_name: str
    speedup: Interval | None

    @property
    def improved(self) -> bool:
        """Whether the kernel is correct, and faster than its origin by the whole 99 % interval."""
        return self.passed and self.outcome == "faster"


class PublishedRow(msgspec.Struct, frozen=True):
    """A published result, from another machine, with other sizes and another correctness rule."""

    name: str
    kind: str
    """ "model" or "agent"."""
    pass_1: Score | None
    pass_k: Score | None
    """Best of three attempts."""
    fast_1: Score | None
    fast_1_k: Score | None
    solved: int
    faster: int


class LeftOut(msgspec.Struct, frozen=True):
    """Results that could not be read."""

    what: str
    """File, what is wrong with it, and what the board lacks."""
    advice: str


class Board(msgspec.Struct, frozen=True):
    """What `pkb-arena board --json` prints."""

    created: float
    """Seconds since the epoch."""
    arena: str
    """Version of pkb-arena."""
    problems: int
    """Number of problems in the catalogue."""
    machines: dict[str, str]
    """Machines in words, by the fingerprints in `scores`."""
    scores: list[Scorecard]
    published: list[PublishedRow]
    source: str
    """Source of the published results."""
    ratings: list[Rating]
    """Ratings from all duels, best first."""
    comparisons: list[Comparison] = []
    """Runs of kernels against those that their players started from."""
    left_out: list[LeftOut] = []
    """Results that the board lacks because they could not be read."""

    @property
    def cards(self) -> list[Scorecard]:
        """The scorecards over all problems."""
        return [card for card in self.scores if card.scope == ALL]

    @property
    def places(self) -> list[ResultPlace]:
        """The places of the cards, in the order of the cards."""
        return list(dict.fromkeys(card.place for card in self.cards))

    @property
    def busiest_place(self) -> ResultPlace | None:
        """The place with the most attempts."""
        counts: Counter[ResultPlace] = Counter()
        for card in self.cards:
            counts[card.place] += card.attempts
        return max(counts, key=lambda place: counts[place], default=None)

    def improved_on(self, card: Scorecard) -> dict[str, int]:
        """Counts problems in which a kernel of the player is faster than its origin, by the name of the origin."""
        found = {
            (each.problem_id, each.origin, each.origin_name)
            for each in self.comparisons
            if each.improved and each.preset_sizes and each.player == card.player
            if ResultPlace(each.preset, each.device, each.world, each.machine) == card.place
        }
        return dict(sorted(Counter(name for _, _, name in found).items())) if card.scope == ALL else {}

    def rating(self, player: str) -> Rating | None:
        """Returns a player's rating; None without one."""
        return next((rating for rating in self.ratings if rating.player == player), None)


def gather(paths: Paths, catalogue: Catalogue, sweeps: Sequence[str] = ()) -> Board:
    """Returns the board of these sweeps, or of all sweeps, single runs and imported bundles. Creates no file.

    Damaged files are left out and named.

    Raises:
        UsageError: there is no such sweep.
        MachineError: the journal of voids cannot be read.
    """
    found: list[Outcome] = []
    machines: dict[str, str] = {}
    compared: list[Comparison] = []
    left_out: list[LeftOut] = []
    voids = read_voids(paths.voids)
    if voids.damaged:
        left_out.append(LeftOut(voids.damaged, DAMAGED_ADVICE))

    def take(path: Path, source: str) -> None:
        try:
            marks = voids.and_those(read_voids(path.with_suffix(VOIDS_SUFFIX))) if source else voids
            theirs = outcomes(path, marks, source)
            known = machines_of(path)
        except JournalDamaged as error:
            left_out.append(LeftOut(f"{error.message}; the board is without this sweep", error.advice))
        else:
            found.extend(theirs)
            machines.update({digest: str(machine) for digest, machine in known.items()})

    for path in chosen_journals(paths.sweeps, sweeps):
        take(path, "")
    if not sweeps:
        for path in journals(paths.imports):
            take(path, path.stem)
        try:
            found, compared = _with_single_runs(paths, catalogue, found)
        except StoreError as error:
            left_out.append(LeftOut(f"{error.message}; the board is without single runs", error.advice))
        here = (this_machine(device) for device in {outcome.place.device for outcome in found})
        machines = {machine.digest: str(machine) for machine in here} | machines
    duels, damaged = read_duels(paths.duels, voids)
    for path, cause in damaged.items():
        fault = damage(path, cause)
        left_out.append(LeftOut(fault.message, fault.advice))
    published = read_published()
    return Board(
        created=time.time(),
        arena=installed_version("pkb-arena") or "",
        problems=len(catalogue.problems),
        machines=machines,
        scores=scorecards(found),
        published=_published(published),
        source=published.source,
        ratings=[rating for rating in ratings(duels) if rating.category == ALL_DUELS],
        comparisons=compared,
        left_out=left_out,
    )


def _with_single_runs(
    paths: Paths, catalogue: Catalogue, swept: Sequence[Outcome]
) -> tuple[list[Outcome], list[Comparison]]:
    """Returns the outcomes of sweeps together with those of runs outside of them, and all comparisons.

    A player's best run of a problem in a place counts as one attempt; harness errors are no attempts. Results of a
    sweep are not counted again. If a sweep has attempts of a model or agent in a place, only these count, because only
    they are independent of each other. The result of any other player in a sweep has the figures of its best run.
    """

    def ask(store: Store) -> tuple[list[RunRecord], list[Comparison]]:
        compared = [
            view(Comparison, record, speedup=record.interval, origin_name=record.versus)
            for record in store.comparisons()
        ]
        return [entry for player in store.players() for entry in store.entries(player)], compared

    entries, compared = stored(paths, ask) or ([], [])
    covered = {_group(each.player, each.place, each.problem_id) for each in swept}
    groups: dict[tuple[str, ResultPlace, int], list[RunRecord]] = {}
    everywhere: dict[tuple[str, int], list[RunRecord]] = {}
    for entry in entries:
        everywhere.setdefault((entry.player, entry.problem_id), []).append(entry)
        if not entry.is_ranked or entry.verdict is Verdict.HARNESS_ERROR:
            continue
        place = ResultPlace(entry.preset, entry.device, entry.world, entry.machine)
        attempts = kind_of(entry.player) in (MODELS, AGENTS)
        if not attempts or _group(entry.player, place, entry.problem_id) not in covered:
            groups.setdefault((entry.player, place, entry.problem_id), []).append(entry)
    known = {problem.id: problem for problem in catalogue.problems}
    best = {
        key: _best(key[0], key[1], known[key[2]], runs, everywhere[key[0], key[2]])
        for key, runs in groups.items()
        if key[2] in known
    }
    both = [_at_its_best(each, best.get((each.player, each.place, each.problem_id))) for each in swept]
    single = [outcome for key, outcome in best.items() if _group(*key) not in covered]
    return both + single, compared


def _at_its_best(swept: Outcome, best: Outcome | None) -> Outcome:
    """Returns a sweep's result with the figures of the player's best run; unchanged if no run is right and timed."""
    if best is None or not best.passed or (best.speedup is None and swept.passed):
        return swept
    return msgspec.structs.replace(
        swept,
        **fields_of(best, "faster speedup percent gap_closed noisy backend"),
        passed=True,
        voided=False,
        holds=swept.holds if best.faster else "",
    )


def _group(player: str, place: ResultPlace, problem_id: int) -> tuple[str, ResultPlace, int]:
    return player, place, 0 if kind_of(player) in (MODELS, AGENTS) else problem_id


def _best(
    player: str, place: ResultPlace, problem: Problem, runs: Sequence[RunRecord], everywhere: Sequence[RunRecord]
) -> Outcome:
    """Returns the best of a player's runs in a place as one attempt. everywhere: all runs of the player in the problem."""
    right = [entry for entry in runs if entry.passed and not entry.voided]
    timed = any(entry.interval is not None for entry in right)
    best = next(iter(fastest(runs)), None)
    times = fields_of(best, "percent gap_closed") | {"speedup": best.median} if best is not None else {}
    return Outcome(
        player=player,
        kind=kind_of(player),
        place=place,
        problem_id=problem.id,
        passed=bool(right),
        faster=best is not None and best.outcome == "faster",
        noisy=timed and best is None,
        backend=(best or right[0]).backend if right else "",
        voided=not right and any(entry.voided for entry in runs),
        holds=holds_elsewhere(best, everywhere) if best is not None else "",
        **fields_of(problem, "category class_"),
        **times,
    )


def _published(published: Published) -> list[PublishedRow]:
    rows = [("model", model.name, model.printed) for model in published.model]
    rows += [("agent", agent.name, agent.printed) for agent in published.agent]
    return [
        PublishedRow(
            name=name,
            kind=kind,
            pass_1=_of_all(printed["solved_1"]),
            pass_k=_of_all(printed.get("solved")),
            fast_1=_of_all(printed["faster_1"]),
            fast_1_k=_of_all(printed.get("faster")),
            solved=printed.get("solved", printed["solved_1"]),
            faster=printed.get("faster", printed["faster_1"]),
        )
        for kind, name, printed in rows
    ]


def _of_all(good: int | None) -> Score | None:
    """Returns a published count as a share of the published problems, with its interval; None without a count."""
    return None if good is None else share([1.0] * good + [0.0] * (PRINTED_PROBLEMS - good))
