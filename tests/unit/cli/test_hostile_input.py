"""Malformed bytes and files: they lead to one error of the right kind, and to nothing else."""

import contextlib
import os
import socket
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from socket_wires import wires_of

from arena.errors import SettingsError, UsageError
from arena.paths import Paths
from arena.settings import load_settings
from benchmarks.attacks.attack_suite import read_kernels
from problems.specification import ProblemError, load_problem
from sandbox.protocol import frames
from sandbox.protocol.frames import Kind
from sandbox.worlds.failures import WorldFailed
from sandbox.worlds.rank_wire import RankWire
from sandbox.worlds.wires import Wires

ALLREDUCE = Path(load_problem.__code__.co_filename).parent / "collective" / "allreduce"
SMALL = settings(max_examples=30, deadline=None)


def hear(wires: Wires, chunks: list[bytes]) -> None:
    """Passes these bytes to the wires as rank 0's."""
    for chunk in chunks:
        try:
            wires.ranks[0].take_in(chunk)
        except WorldFailed as failure:
            wires.fail(failure)


def alive() -> str:
    return ""


FRAME = st.builds(
    frames.encode, st.sampled_from(list(Kind)), st.integers(0, 2**32 - 1), st.integers(-(2**63), 2**63 - 1)
)


@pytest.mark.slow
@given(st.lists(st.one_of(st.binary(max_size=64), FRAME), max_size=20))
@settings(max_examples=100, deadline=None)
def test_rank_sends_awaited_frame_or_fails(chunks):
    with wires_of() as (wires, _):
        hear(wires, chunks)
        with contextlib.suppress(WorldFailed):
            assert 1 in wires.missing(Kind.DONE, alive)  # one rank cannot answer for another
        assert all(answer.reply is None for wire in wires.ranks for answer in wire.answers)


@given(st.binary(min_size=16, max_size=16))
@settings(max_examples=100, deadline=None)
def test_sixteen_bytes_are_a_frame_or_bad(data):
    try:
        frame = frames.decode(data)
    except ValueError:
        return
    assert frames.encode(*frame) == data


def test_frames_without_end_are_a_protocol_failure():
    with wires_of() as (wires, _):
        hear(wires, [frames.encode(Kind.READY) * 5000])
        with pytest.raises(WorldFailed) as failed:
            wires.missing(Kind.DONE, alive)
        assert failed.value.kind == "PROTOCOL"


def test_what_was_said_unasked_is_seen_before_go():
    with wires_of() as (wires, theirs):
        wires.require_silence()
        assert wires.failure is None
        theirs.ranks[1].sendall(frames.encode(Kind.DONE))
        wires.require_silence()
        assert (wires.failure.kind, wires.failure.rank) == ("PROTOCOL", 1)


@given(st.integers(0, 2**32 - 1), st.binary(max_size=4092))
@SMALL
def test_a_report_is_bounded_text(length, data):
    page = bytearray(4096)
    page[:4] = struct.pack("<I", length)
    page[4 : 4 + len(data)] = data
    mine, theirs = socket.socketpair()
    with mine, theirs:
        assert len(RankWire(0, False, mine, -1, page).report()) <= 4092


TEXT = st.one_of(st.text(max_size=300), st.binary(max_size=300).map(lambda data: data.decode("latin-1")))


def toml_mutations(path: Path) -> st.SearchStrategy[str]:
    """A real file with a part of it replaced."""
    text = path.read_text()
    cut = st.tuples(st.integers(0, len(text)), st.integers(0, 60), st.text(max_size=30))
    return cut.map(lambda c: text[: c[0]] + c[2] + text[c[0] + c[1] :])


@given(st.one_of(TEXT, toml_mutations(ALLREDUCE / "problem.toml")))
@SMALL
def test_a_problem_is_read_or_refused(text):
    with tempfile.TemporaryDirectory() as folder:
        for name in ("card.md", "inputs.py", "baseline.py"):
            (Path(folder) / name).write_bytes((ALLREDUCE / name).read_bytes())
        (Path(folder) / "problem.toml").write_text(text, encoding="utf-8", errors="surrogateescape")
        with contextlib.suppress(ProblemError):
            load_problem(Path(folder))


KEYS = st.sampled_from(["theme", "world", "models.a", "keymap"])


@given(st.one_of(TEXT, st.tuples(KEYS, TEXT).map(" = ".join)))
@SMALL
def test_settings_are_read_or_refused(text):
    with tempfile.TemporaryDirectory() as folder:
        paths = Paths(*(Path(folder) for _ in range(3)))
        paths.settings_file.write_text(text, encoding="utf-8", errors="surrogateescape")
        with contextlib.suppress(SettingsError):
            load_settings(paths)


def test_attack_without_what_is_expected_is_error(tmp_path):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "a01.py").write_text("# problem: allreduce\ndef solution(x): pass\n")
    with pytest.raises(UsageError, match=r"\$.expect"):
        read_kernels(tmp_path)
    assert os.listdir(tmp_path) == ["kernels"]


def test_rank_has_begun_when_it_has_read_go():
    with wires_of() as (wires, theirs):
        assert wires.has_begun(0)
        wires.release([0])
        assert not wires.has_begun(0)
        assert wires.has_begun(1)
        theirs.ranks[0].recv(64)
        assert wires.has_begun(0)
