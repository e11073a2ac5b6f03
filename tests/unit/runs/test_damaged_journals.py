"""Journals of runs that end early or have a wrong byte: whole events or none, and no error of another kind."""

import contextlib
from pathlib import Path

import msgspec
import pytest
from damage import Flip, flips, whole_lines
from fixed_examples import examples
from hypothesis import given
from hypothesis import strategies as st
from run_states import fold
from stored_runs import entry_in, header

from arena.paths import Paths
from arena.records.header import read_events, read_header
from arena.records.index import Store
from arena.records.run_record import record_of
from sandbox.protocol.events import AnyEvent, Finished, decode_event, encode

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


@examples(200)
@given(flips(WHOLE, start=WHOLE.index(b"\n") + 1))
def test_wrong_byte_costs_event_or_rest(tmp_path: Path, flip: Flip) -> None:
    found = list(read_events(written(tmp_path, flip.data)))
    assert found[: flip.line - 1] == EVENTS[: flip.line - 1]
    assert len(found) in (flip.line - 1, len(EVENTS))
    assert found[flip.line :] in ([], EVENTS[flip.line :])


@examples(100)
@given(flips(WHOLE[: len(encode(HEADER))]))
def test_header_with_wrong_byte_reads_or_raises(tmp_path: Path, flip: Flip) -> None:
    with contextlib.suppress(ValueError):
        read_header(written(tmp_path, flip.data)).source.encode()


@examples(150)
@given(st.one_of(flips(WHOLE), flips(FAILED)))
def test_what_can_be_read_can_be_shown(tmp_path: Path, flip: Flip) -> None:
    state = fold(list(read_events(written(tmp_path, flip.data))))
    for name in ("running", "verdict", "failure", "headline", "seconds"):
        getattr(state, name)
    if state.result is not None:
        msgspec.json.encode(record_of(HEADER, state.result))


@examples(15)
@given(flips(WHOLE))
def test_index_is_made_of_what_can_be_read(paths: Paths, flip: Flip) -> None:
    paths.runs.mkdir(parents=True, exist_ok=True)
    path = written(paths.runs, flip.data)
    paths.database.unlink(missing_ok=True)
    store = Store(paths.database, paths.runs)
    finished = [event for event in read_events(path) if isinstance(event, Finished)]
    try:
        header = read_header(path)
    except ValueError:
        finished = []
    assert len(store.entries("you")) <= len(finished)
    assert not finished or entry_in(store, header.run_id)
    store.close()


@pytest.mark.parametrize("run", ["run", "duel", "trace"])
def test_a_header_that_is_no_text_is_named(pkb_arena: object, tmp_path: Path, run: str) -> None:
    (tmp_path / "odd.jsonl").write_bytes(b'{"type":"%s","player":"\xff"}\n' % run.encode())
    done = pkb_arena("replay", "odd.jsonl")  # type: ignore[operator]
    assert (done.returncode, done.stdout) == (2, "")
    assert "odd.jsonl cannot be replayed" in done.stderr
