"""Journals of duels, recorded or damaged: whole events or none, and no winner that was not recorded."""

from pathlib import Path

import pytest
from damage import Flip, flips
from fixed_examples import examples
from hypothesis import given

import arena
from arena.cli.duel import duel_line
from arena.duel.card import svg_card, text_card
from arena.duel.events import DuelEnded, decode_duel_event
from arena.duel.journal import ending, ratings, read_duel, read_duel_header, read_duels
from arena.duel.state import DuelState

WHOLE = (Path(__file__).parents[2] / "ui" / "recordings" / "duel.jsonl").read_bytes()
EVENTS = [decode_duel_event(line) for line in WHOLE.splitlines()[1:]]
FLIPS = flips(WHOLE)


def written(folder: Path, data: bytes) -> Path:
    path = folder / "d.jsonl"
    path.write_bytes(data)
    return path


@examples(200)
@given(FLIPS)
def test_damaged_duel_is_decided_by_last_line_alone(tmp_path: Path, flip: Flip) -> None:
    path = written(tmp_path, flip.data)
    records, damaged = read_duels(tmp_path)
    assert len(records) + len(damaged) <= 1
    for record in records:
        assert record.ended == EVENTS[-1] or flip.line == len(EVENTS)
        ratings(records)
    if not damaged and not records:
        try:
            assert not isinstance(ending(path), DuelEnded)
        except ValueError:
            assert flip.line >= len(EVENTS) - 1


@examples(200)
@given(FLIPS)
def test_what_can_be_read_can_be_shown(tmp_path: Path, flip: Flip) -> None:
    path = written(tmp_path, flip.data)
    try:
        header = read_duel_header(path)
    except ValueError:
        return
    state = DuelState(header)
    for event in read_duel(path):
        state.apply(event)
        duel_line(header, event)
    if state.ended is not None:
        text_card(header, state.ended)


DOCS = Path(arena.__file__).resolve().parents[1] / "docs"


@pytest.mark.parametrize("name", ["duel", "duel-house"])
def test_the_picture_is_of_this_duel(name: str) -> None:
    recorded = DuelState(read_duel_header(DOCS / f"{name}.jsonl"))
    for event in read_duel(DOCS / f"{name}.jsonl"):
        recorded.apply(event)
    assert recorded.ended is not None
    assert (DOCS / f"{name}.svg").read_text(encoding="utf-8") == svg_card(recorded)
