"""The README's duels: their recordings can be replayed, the first has a winner, and the pictures show them."""

from pathlib import Path

import pytest

import arena
from arena.duel.card import svg_card
from arena.duel.journal import read_duel, read_duel_header
from arena.duel.state import DuelState

DOCS = Path(arena.__file__).resolve().parents[1] / "docs"


def told_again(name: str) -> DuelState:
    state = DuelState(read_duel_header(DOCS / f"{name}.jsonl"))
    for event in read_duel(DOCS / f"{name}.jsonl"):
        state.apply(event)
    return state


def test_the_recorded_duel_was_won_after_a_wrong_kernel() -> None:
    recorded = told_again("duel")
    assert recorded.ended is not None
    assert recorded.ended.winner == "right"
    assert [attempt.passed for attempt in recorded.right.attempts] == [False, True]


@pytest.mark.parametrize("name", ["duel", "duel-house"])
def test_the_picture_is_of_this_duel(name: str) -> None:
    recorded = told_again(name)
    assert recorded.ended is not None
    assert (DOCS / f"{name}.svg").read_text(encoding="utf-8") == svg_card(recorded)
