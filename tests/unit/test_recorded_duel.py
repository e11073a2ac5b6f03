"""The README's duel: its recording can be told again, is decided, and is what the picture shows."""

from pathlib import Path

import pytest

import arena
from arena.duel.card import svg_card
from arena.duel.journal import read_duel, read_duel_header
from arena.duel.state import DuelState

DOCS = Path(arena.__file__).resolve().parents[1] / "docs"


@pytest.fixture
def recorded() -> DuelState:
    state = DuelState(read_duel_header(DOCS / "duel.jsonl"))
    for event in read_duel(DOCS / "duel.jsonl"):
        state.apply(event)
    return state


def test_the_recorded_duel_was_won_after_a_wrong_kernel(recorded: DuelState) -> None:
    assert recorded.ended is not None
    assert recorded.ended.winner == "right"
    assert [attempt.passed for attempt in recorded.right.attempts] == [False, True]


def test_the_picture_is_of_this_duel(recorded: DuelState) -> None:
    assert (DOCS / "duel.svg").read_text(encoding="utf-8") == svg_card(recorded)
