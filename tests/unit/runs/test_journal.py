"""Journals: all events, in order, also on a full disk."""

import os
from pathlib import Path

from stored_runs import header, result

from arena.records.header import read_events, read_header
from arena.records.json_lines import Journal
from sandbox.protocol.events import Finished, Log, PhaseStarted, Seconds, Setting

SETTING = Setting(problem_dir="/problems/x", preset="tiny", sizes={"M": 2}, world=2, device="cpu", dtype="float32")
HEADER = header(
    "r1", "def solution():\n    return '\x1b[31m ü'\n", created=1.5, kernel_path="/k/kernel.py", setting=SETTING
)
RESULT = result(paper_rule="match", seconds=Seconds(total=0.5), jail="none")
EVENTS = [
    PhaseStarted(run_id="r1", phase="check", limit_s=5.0),
    Log(run_id="r1", rank=0, stream="stdout", text="[/x] \n \x00"),
    Finished(run_id="r1", sha256="0" * 64, result=RESULT),
]


def complain(error: OSError) -> None:
    raise AssertionError(error)


def test_events_are_on_disk_before_journal_is_closed(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "r1.jsonl", HEADER, complain)
    journal.append(EVENTS[0])
    assert list(read_events(tmp_path / "r1.jsonl")) == EVENTS[:1]
    journal.close()


def test_full_disk_is_reported_once_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "r1.jsonl").symlink_to("/dev/full")
    troubles: list[OSError] = []
    journal = Journal(tmp_path / "r1.jsonl", HEADER, troubles.append)
    for event in EVENTS:
        journal.append(event)
    assert not journal.close()
    assert [error.strerror for error in troubles] == ["No space left on device"]


def test_text_held_by_full_disk_is_written_later(tmp_path: Path) -> None:
    path = tmp_path / "r1.jsonl"
    path.symlink_to("/dev/full")
    journal = Journal(path, HEADER, lambda error: None)
    journal.append(EVENTS[0])
    path.unlink()
    room = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    assert journal._file is not None
    os.dup2(room, journal._file._file)  # the same open file, on a disk with room
    os.close(room)
    journal.append(EVENTS[1])
    journal.close()
    assert read_header(path) == HEADER
    assert list(read_events(path)) == EVENTS[:2]
