"""Duels on disk: a header, then one event per line; and the ratings of the players over all duels.

Ratings are Weng and Lin's online Bradley-Terry (library openskill), which supports draws and gives an uncertainty.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
from openskill.models import BradleyTerryFull

from arena.duel import events
from arena.duel.state import DuelState
from arena.errors import MachineError, why
from arena.paths import Paths, files_in, make_folder, unwritable
from arena.players.trace import TraceHeader
from arena.records.code_hash import code_hash
from arena.records.header import RunHeader
from arena.records.json_lines import Journal, decoder, last_line, read_first, read_later
from arena.records.voids import NO_VOIDS, Void, Voids

SILENT_S = 900.0
"""A duel without an end counts as abandoned if its journal did not grow for this time, in seconds."""


read_duel_header: Callable[[Path], events.DuelHeader] = partial(read_first, decode=events.decode_header)
read_duel: Callable[[Path], Iterator[events.AnyDuelEvent]] = partial(read_later, decode=events.decode_duel_event)
"""`read_first` and `read_later` of a duel's journal."""
AnyHeader = RunHeader | events.DuelHeader | TraceHeader
read_any_header: Callable[[Path], AnyHeader] = partial(read_first, decode=decoder(AnyHeader))
"""`read_first` of a journal whose kind is not known."""


class DuelRecord(msgspec.Struct, frozen=True):
    """A duel that was decided, or abandoned after a kernel of it was judged."""

    header: events.DuelHeader
    ended: events.DuelEnded | None
    path: Path | None = None
    """The journal's file; None for a duel without one."""
    voided: Void | None = None
    """The mark because of which it does not count for ratings; None: it counts."""
    state: DuelState | None = None
    """The end of an abandoned duel, which is not rated; None: it was decided."""


def open_duel_journal(paths: Paths, header: events.DuelHeader, on_trouble: Callable[[OSError], None]) -> Journal:
    """Creates the journal of a new duel. `on_trouble` receives the first error of a later write.

    Raises:
        FolderUnwritable: the folder of the duels cannot be created, or the header cannot be written. No file is left.
    """
    make_folder(paths.duels)
    failed: list[OSError] = []
    begun = False

    def report(error: OSError) -> None:
        (on_trouble if begun else failed.append)(error)

    journal = Journal(paths.duels / f"{header.duel_id}.jsonl", header, report)
    if failed:
        journal.close()
        with suppress(OSError):
            journal.path.unlink()
        raise unwritable(paths.duels, failed[0])
    begun = True
    return journal


def read_duels(folder: Path, voids: Voids = NO_VOIDS) -> tuple[list[DuelRecord], dict[Path, Exception]]:
    """Returns all decided duels, oldest first, and the unreadable files with their errors.

    Unfinished duels, and those whose last line is truncated, are in neither. A duel with an empty journal is unfinished.
    """
    found: list[DuelRecord] = []
    damaged: dict[Path, Exception] = {}
    for path in files_in(folder):
        try:
            if path.stat().st_size == 0:
                continue
            header = read_duel_header(path)
        except (OSError, ValueError) as error:
            damaged[path] = error
            continue
        try:
            last = ending(path)
        except (OSError, ValueError):
            continue
        if isinstance(last, events.DuelEnded):
            found.append(DuelRecord(header, last, path, _voided(header, last, path, voids)))
    return found, damaged


def abandoned_duels(folder: Path) -> list[DuelRecord]:
    """Returns the duels that were abandoned after a verdict, or whose journal ends early, oldest first."""
    found = []
    for path in files_in(folder):
        with suppress(OSError, ValueError):
            last = ending(path)
            if isinstance(last, events.DuelEnded) or (
                last is None and abs(time.time() - path.stat().st_mtime) < SILENT_S
            ):
                continue
            state = DuelState(read_duel_header(path))
            for event in read_duel(path):
                state.apply(event)
            if not state.over:
                state.apply(events.Abandoned(at=state.at, reason="its journal ends early"))
            if state.ended is None and any(each.judged for side in events.SIDES for each in state.side(side).attempts):
                found.append(DuelRecord(state.header, None, path, state=state))
    return found


def damage(path: Path, error: Exception) -> MachineError:
    """Returns the error about a file that `read_duels` could not read."""
    reason = why(error) if isinstance(error, OSError) else "this is no duel's journal"
    return MachineError(f"{path}: {reason}; the ratings are without it", "move the file elsewhere")


def _voided(header: events.DuelHeader, ended: events.DuelEnded, path: Path, voids: Voids) -> Void | None:
    """Returns the mark on the duel, or on a kernel that decided it: the winner's, or both in a draw."""
    if not voids:
        return None
    rests_on = {(side, ended.side(side).attempt) for side in events.SIDES if ended.winner in (side, "draw")}
    marks = [voids.of(header.duel_id, "")]
    with suppress(OSError):
        for event in read_duel(path):
            match event:
                case events.FinalBegan():
                    marks.append(voids.of(event.run_id, ""))
                case events.KernelJudged() if (event.side, event.attempt) in rests_on:
                    marks.append(voids.of(event.run_id, ""))
                case events.Submitted() if (event.side, event.attempt) in rests_on:
                    marks.append(voids.of("", code_hash(event.kernel)))
    return next((mark for mark in marks if mark is not None), None)


def ending(path: Path) -> events.DuelEnded | events.Abandoned | None:
    """Reads the last event of a duel; None while it is played, or if its journal ends early.

    Raises:
        OSError, ValueError: the file cannot be read, or its last line is not a duel's event.
    """
    line = last_line(path)
    event = events.decode_duel_event(line) if line else None
    return event if isinstance(event, events.DuelEnded | events.Abandoned) else None


ALL = "all"
"""The category that counts every duel."""
CENTRE, SPREAD = 1500.0, 40.0
"""A new player's rating, and points per unit of the library's scale. A new player's sigma is 25/3 on that scale."""


class Rating(msgspec.Struct, frozen=True):
    """One player in one category."""

    category: str
    player: str
    rating: float
    """1500 for a new player."""
    plus_minus: float
    """Half of the 95 % interval."""
    duels: int
    won: int
    drawn: int
    lost: int


def ratings(records: Iterable[DuelRecord]) -> list[Rating]:
    """Computes all ratings, best first within a category. Rates the duels in the order in which they were played.

    Ignores voided duels, duels of a player with itself, and duels in which a provider or program failed before its
    side submitted a kernel. Sweeps do not count such an attempt either.
    """
    by_category: dict[str, list[DuelRecord]] = {}
    for record in sorted(records, key=lambda record: record.header.created):
        oneself = record.header.left.name == record.header.right.name
        if record.ended and record.voided is None and not oneself and not record.ended.never_played:
            by_category.setdefault(ALL, []).append(record)
            by_category.setdefault(record.header.category, []).append(record)
    return [rating for category, played in by_category.items() for rating in _rate(category, played)]


def _rate(category: str, records: list[DuelRecord]) -> list[Rating]:
    model = BradleyTerryFull()
    skills = {}
    tally: dict[str, list[int]] = {}
    for record in records:
        players = (record.header.left.name, record.header.right.name)
        for player in players:
            if player not in skills:
                skills[player], tally[player] = model.rating(name=player), [0, 0, 0]
        winner = record.ended.winner if record.ended is not None else "draw"
        ranks = {"left": [1.0, 2.0], "right": [2.0, 1.0], "draw": [1.0, 1.0]}[winner]
        rated = model.rate([[skills[player]] for player in players], ranks=ranks)
        for player, side, (skill,) in zip(players, ("left", "right"), rated, strict=True):
            skills[player] = skill
            tally[player][1 if winner == "draw" else 0 if winner == side else 2] += 1
    found = [
        Rating(
            category=category,
            player=player,
            rating=CENTRE + SPREAD * (skill.mu - 25.0),
            plus_minus=1.96 * SPREAD * skill.sigma,
            duels=sum(tally[player]),
            won=tally[player][0],
            drawn=tally[player][1],
            lost=tally[player][2],
        )
        for player, skill in skills.items()
    ]
    return sorted(found, key=lambda rating: (-rating.rating, rating.player))
