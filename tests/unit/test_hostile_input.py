"""Bytes and files that nobody meant: they end in one error of the right kind, and in nothing else."""

import contextlib
import os
import selectors
import socket
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.attack_suite import read_kernels
from arena.errors import SettingsError, UsageError
from arena.foreign_text import printable
from arena.paths import Paths
from arena.settings import load_settings
from problems.specification import ProblemError, load_problem
from sandbox import frames
from sandbox.frames import Kind
from sandbox.world import World, WorldFailed, _Line
from screens.themes import ThemeError, load_theme

ALLREDUCE = Path(load_problem.__code__.co_filename).parent / "collective" / "allreduce"
SMALL = settings(max_examples=60, deadline=None)


class Report(bytearray):
    """Stands where a rank's report page is mapped."""


def silent_world(ranks: int = 2) -> World:
    """A world without processes: what its ranks say is put into its buffers."""
    world = World.__new__(World)
    world.ranks, world.trusted = ranks, False
    world.failure, world.compiling, world.said = None, set(), ""
    world.on_compiling = lambda active: None
    world._compiled = 0.0
    world.selector = selectors.DefaultSelector()
    world.lines = [_Line(socket.socket(), -1, Report(4096)) for _ in range(ranks)]
    return world


def hear(world: World, chunks: list[bytes]) -> None:
    for chunk in chunks:
        world.lines[0].buffer += chunk
        world._split(0, world.lines[0])


FRAME = st.builds(
    frames.encode, st.sampled_from(list(Kind)), st.integers(0, 2**32 - 1), st.integers(-(2**63), 2**63 - 1)
)


@given(st.lists(st.one_of(st.binary(max_size=64), FRAME), max_size=20))
@settings(max_examples=300, deadline=None)
def test_whatever_a_rank_sends_is_an_awaited_frame_or_its_own_failure(chunks):
    world = silent_world()
    hear(world, chunks)
    with contextlib.suppress(WorldFailed):
        waiting = world.missing(Kind.DONE)
        assert 1 in waiting  # one rank cannot speak for another
    for line in world.lines:
        assert len(line.buffer) < frames.SIZE
        line.sock.close()


@given(st.binary(min_size=16, max_size=16))
@settings(max_examples=300, deadline=None)
def test_sixteen_bytes_are_a_frame_or_bad(data):
    try:
        frame = frames.decode(data)
    except frames.BadFrame:
        return
    assert frames.encode(*frame) == data


def test_frames_without_end_are_a_protocol_failure():
    world = silent_world()
    hear(world, [frames.encode(Kind.READY) * 5000])
    with pytest.raises(WorldFailed) as failed:
        world.missing(Kind.DONE)
    assert failed.value.kind == "PROTOCOL"


@given(st.integers(0, 2**32 - 1), st.binary(max_size=4092))
@SMALL
def test_a_report_is_bounded_text(length, data):
    world = silent_world(1)
    world.lines[0].report[:4] = struct.pack("<I", length)
    world.lines[0].report[4 : 4 + len(data)] = data
    world.lines[0].report[4096:] = b""
    assert len(world.report(0)) <= 4092


@given(st.text())
@settings(max_examples=300, deadline=None)
def test_what_is_shown_is_inert(text):
    shown = printable(text)
    assert not [c for c in shown if (c < " " and c != "\n") or "\x7f" <= c <= "\x9f"]
    assert printable(shown) == shown


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


THEMES = Path(load_theme.__code__.co_filename).parent.parent / "themes"


@given(st.one_of(TEXT, toml_mutations(THEMES / "dark.toml")))
@SMALL
def test_a_theme_is_read_or_refused(text):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "own.toml"
        path.write_text(text, encoding="utf-8", errors="surrogateescape")
        with contextlib.suppress(ThemeError):
            load_theme(path)


def test_an_attack_without_what_is_expected_is_an_error(tmp_path):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "a01.py").write_text("# attack: A1\n# problem: allreduce\n")
    with pytest.raises(UsageError, match="expect"):
        read_kernels(tmp_path)
    assert os.listdir(tmp_path) == ["kernels"]
