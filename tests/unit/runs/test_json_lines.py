"""Files of JSON lines: what is torn is cut, what is read is whole, and what cannot be decoded stops nothing else."""

import os
from fcntl import LOCK_EX, LOCK_NB
from pathlib import Path

import msgspec
import pytest

from arena.records import json_lines
from arena.records.json_lines import Follower, LineFile, append_line, decoder, last_line, read_later, whole_lines
from arena.records.voids import Void, read_voids

DEEP = b'{"run": "r", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


class Point(msgspec.Struct):
    x: int


def texts(path: Path) -> list[bytes]:
    return [line.data for line in whole_lines(path)]


def test_a_torn_line_is_cut_before_the_next(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b'{"x":1}\n{"x"' + b" " * 70_000)
    append_line(path, Point(2))
    assert path.read_bytes() == b'{"x":1}\n{"x":2}\n'


def test_a_partial_write_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: write(file, data[:3], at))
    append_line(tmp_path / "a", Point(12345))
    assert (tmp_path / "a").read_bytes() == b'{"x":12345}\n'


def test_a_failed_write_leaves_the_lines_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    file, write = LineFile(path), os.pwrite
    file.append(b"1")

    def full(number: int, data: bytes, at: int) -> int:
        if at > 3:
            raise OSError(28, "No space left on device")
        return write(number, data[:2], at)

    with monkeypatch.context() as disk:
        disk.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space"):
            file.append(b"23456")
    assert path.read_bytes() == b"1\n"
    file.append(b"7")
    file.close()
    assert texts(path) == [b"1\n", b"7\n"]


def test_a_locked_file_has_one_writer(tmp_path: Path) -> None:
    file = LineFile(tmp_path / "a", LOCK_EX)
    with pytest.raises(BlockingIOError):
        LineFile(tmp_path / "a", LOCK_EX | LOCK_NB)
    file.close()
    LineFile(tmp_path / "a", LOCK_EX | LOCK_NB).close()


def test_a_follower_takes_whole_lines_once(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"1\n2\n3")
    follower = Follower(path)
    assert [line.number for line in follower.more(most=1)] == [1]
    assert [line.data for line in follower.more()] == [b"2\n"]
    with path.open("ab") as file:
        file.write(b"4\n")
    assert [(line.number, line.data) for line in follower.more()] == [(3, b"34\n")]
    assert not list(follower.more())


def test_line_that_is_too_long_is_refused_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "MOST_BYTES", 20)
    path = tmp_path / "a"
    path.write_bytes(b'{"x": 1}\n{"x":' + b" " * 1000 + b'2}\n{"x": 3}\n')
    found, refused = [], []
    for line in whole_lines(path):
        try:
            found.append(decoder(Point)(line.data).x)
        except ValueError:
            refused.append(line.number)
    assert (found, refused) == ([1, 3], [2])
    assert list(read_later(path, decoder(Point))) == []


@pytest.mark.parametrize("line", [DEEP, b"[" * 100_000, b"\xff", b"{}"])
def test_line_that_does_not_fit_is_value_error(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decoder(Point)(line)


def test_the_last_line_is_a_whole_one(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for data, last in ((b"", b""), (b"1", b""), (b"1\n", b"1"), (b"1\n2\n3", b"2")):
        path.write_bytes(data)
        assert last_line(path) == last


def test_deeply_nested_void_hides_no_other(tmp_path: Path) -> None:
    path = tmp_path / "voids.jsonl"
    path.write_bytes(DEEP + b"\n")
    append_line(path, Void(at=1.0, note="cheats", by="anna", run="r2"))
    voids = read_voids(path)
    assert list(voids.runs) == ["r2"]
    assert "line 1 cannot be read" in voids.damaged
