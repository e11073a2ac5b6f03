"""Files of JSON lines, and journals of runs: what is torn is cut, what is read is whole, and a full disk stops nothing."""

import os
from fcntl import LOCK_EX, LOCK_NB
from pathlib import Path

import msgspec
import pytest
from stored_runs import header, result

from arena.records import json_lines
from arena.records.header import read_events, read_header
from arena.records.voids import Void, read_voids
from sandbox.protocol.events import Finished, Log, PhaseStarted, Seconds, Setting

DEEP = b'{"run": "r", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


class Point(msgspec.Struct):
    x: int


def texts(path: Path) -> list[bytes]:
    return [line.data for line in json_lines.whole_lines(path)]


def test_a_torn_line_is_cut_before_the_next(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b'{"x":1}\n{"x"' + b" " * 70_000)
    json_lines.append_line(path, Point(2))
    assert path.read_bytes() == b'{"x":1}\n{"x":2}\n'


def test_file_of_another_process_is_closed_again(tmp_path: Path) -> None:
    held = json_lines.LineFile(tmp_path / "a", LOCK_EX | LOCK_NB)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(BlockingIOError):
        json_lines.LineFile(tmp_path / "a", LOCK_EX | LOCK_NB)
    assert os.listdir("/proc/self/fd") == before
    held.close()


def test_a_long_file_is_followed_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "FOLLOW_BYTES", 20)
    (tmp_path / "a").write_bytes(b'{"x":1}\n' * 6)
    follower = json_lines.Follower(tmp_path / "a")
    assert [len(list(follower.more())) for _ in range(3)] == [3, 3, 0]


def test_a_partial_write_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: write(file, data[:3], at))
    json_lines.append_line(tmp_path / "a", Point(12345))
    assert (tmp_path / "a").read_bytes() == b'{"x":12345}\n'


def test_a_failed_write_leaves_the_lines_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    file, write = json_lines.LineFile(path), os.pwrite
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


def test_a_follower_takes_whole_lines_once(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"1\n2\n3")
    follower = json_lines.Follower(path)
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
    for line in json_lines.whole_lines(path):
        try:
            found.append(json_lines.decoder(Point)(line.data).x)
        except ValueError:
            refused.append(line.number)
    assert (found, refused) == ([1, 3], [2])
    assert list(json_lines.read_later(path, json_lines.decoder(Point))) == []


@pytest.mark.parametrize("line", [DEEP, b"[" * 100_000, b"\xff", b"{}"])
def test_line_that_does_not_fit_is_value_error(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        json_lines.decoder(Point)(line)


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")
    for read in (texts, read_header):
        with pytest.raises(OSError, match="no plain file"):
            read(tmp_path / "a")


def test_the_last_line_is_a_whole_one(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for data, last in ((b"", b""), (b"1", b""), (b"1\n", b"1"), (b"1\n2\n3", b"2")):
        path.write_bytes(data)
        assert json_lines.last_line(path) == last


def test_deeply_nested_void_hides_no_other(tmp_path: Path) -> None:
    path = tmp_path / "voids.jsonl"
    path.write_bytes(DEEP + b"\n")
    json_lines.append_line(path, Void(at=1.0, note="cheats", by="anna", run="r2"))
    voids = read_voids(path)
    assert list(voids.runs) == ["r2"]
    assert "line 1 cannot be read" in voids.damaged


SETTING = Setting(problem_dir="/problems/x", preset="tiny", sizes={"M": 2}, world=2, device="cpu", dtype="float32")
HEADER = header(
    "r1", "def solution():\n    return '\x1b[31m ü'\n", created=1.5, kernel_path="/k/kernel.py", setting=SETTING
)
RESULT = result(paper_rule="match", seconds=Seconds(total=0.5), jail="none")
EVENTS = [
    PhaseStarted(run_id="r1", phase="check", limit_s=5.0),
    Log(run_id="r1", rank=0, text="[/x] \n \x00"),
    Finished(run_id="r1", sha256="0" * 64, result=RESULT),
]


def test_events_are_on_disk_before_journal_is_closed(tmp_path: Path) -> None:
    journal = json_lines.Journal(tmp_path / "r1.jsonl", HEADER, pytest.fail)
    journal.append(EVENTS[0])
    assert list(read_events(tmp_path / "r1.jsonl")) == EVENTS[:1]
    journal.close()


def test_full_disk_is_reported_once_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "r1.jsonl").symlink_to("/dev/full")
    troubles: list[OSError] = []
    journal = json_lines.Journal(tmp_path / "r1.jsonl", HEADER, troubles.append)
    for event in EVENTS:
        journal.append(event)
    assert not journal.close()
    assert [error.strerror for error in troubles] == ["No space left on device"]


def test_text_held_by_full_disk_is_written_later(tmp_path: Path) -> None:
    path = tmp_path / "r1.jsonl"
    path.symlink_to("/dev/full")
    journal = json_lines.Journal(path, HEADER, lambda error: None)
    journal.append(EVENTS[0])
    path.unlink()
    room = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(room, journal._file._file)  # the same open file, on a disk with room
    os.close(room)
    journal.append(EVENTS[1])
    journal.close()
    assert read_header(path) == HEADER
    assert list(read_events(path)) == EVENTS[:2]


def test_a_line_is_on_disk_when_append_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    json_lines.append_line(tmp_path / "a", Point(1))
    assert len(synced) == 1
