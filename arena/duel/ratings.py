"""Bradley-Terry ratings of the players over all duels, by category and overall.

The method is Weng and Lin's online Bradley-Terry (library openskill). It supports draws and gives an uncertainty.
"""

from collections.abc import Iterable

import msgspec
from openskill.models import BradleyTerryFull

from arena.duel.journal import DuelRecord

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
        if record.voided is None and not oneself and not record.ended.never_played:
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
        winner = record.ended.winner
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
