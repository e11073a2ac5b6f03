"""Journals of runs that end early or have a wrong byte: whole events or none, and no error of another kind."""

from pathlib import Path

import msgspec
import pytest
from damage import Flip, flips, whole_lines
from fixed_examples import examples
from hypothesis import given
from hypothesis import strategies as st
from run_states import fold
from stored_runs import header

from arena.records.header import read_events, read_header
from arena.records.run_record import record_of
from sandbox.protocol.events import AnyEvent, decode_event, encode

RECORDINGS = Path(__file__).parents[2] / "ui" / "recordings"
HEADER = header(
    "r1",
    "def solution():\n    return 'ü 😀'\n",
    problem_id=13,
    slug="gemm_allreduce",
    category="tensor",
    kernel_path="/k/kernel.py",
)


def journal(recording: str) -> tuple[bytes, list[AnyEvent]]:
    """Returns a journal's bytes and its events."""
    lines = (RECORDINGS / recording).read_bytes().splitlines()
    return b"\n".join([encode(HEADER), *lines, b""]), [decode_event(line) for line in lines]


WHOLE, EVENTS = journal("pass.jsonl")
FAILED, _ = journal("wrong.jsonl")


def written(folder: Path, data: bytes) -> Path:
    path = folder / "r1.jsonl"
    path.write_bytes(data)
    return path


@examples(100)
@given(st.integers(0, len(WHOLE)))
def test_journal_that_ends_early_has_its_whole_events(tmp_path: Path, length: int) -> None:
    path = written(tmp_path, WHOLE[:length])
    ended = WHOLE[:length].count(b"\n")  # a line without its end may be one that is being written
    assert list(read_events(path)) == EVENTS[: max(ended - 1, 0)]
    if whole_lines(WHOLE, length):
        assert read_header(path) == HEADER
    else:
        with pytest.raises(ValueError, match=r"truncated|malformed"):
            read_header(path)


@examples(150)
@given(st.one_of(flips(WHOLE), flips(FAILED)))
def test_what_can_be_read_can_be_shown(tmp_path: Path, flip: Flip) -> None:
    state = fold(list(read_events(written(tmp_path, flip.data))))
    for name in ("running", "verdict", "failure", "headline", "seconds"):
        getattr(state, name)
    if state.result is not None:
        msgspec.json.encode(record_of(HEADER, state.result))
