"""What runs and waits on a machine: the queue of devices, and sweeps that are started, stopped and resumed."""

from collections.abc import Callable

import pytest
from waiting import eventually

from arena.errors import UsageError
from arena.paths import Paths
from arena.sweep.underway import Sweeps, Work, rename_sweep, runs_under_way, start_sweep, stop_sweep
from sandbox.referee.lease import Applicant, Note, Urgency, queue


def applicant(pid: int, urgency: Urgency, holds: bool = False, expected_s: float = 4.0) -> Applicant:
    return Applicant(0, pid, Note(["cores"], urgency, 1000.0, holds, "allreduce", expected_s))


def test_a_turn_is_expected_after_those_before_it() -> None:
    held = [
        applicant(1, Urgency.PERSON, holds=True),
        applicant(2, Urgency.PERSON),
        applicant(3, Urgency.SWEEP, expected_s=0),
        applicant(4, Urgency.SWEEP),
    ]
    rows = [(row.place, row.expected_s) for row in runs_under_way(held)]
    assert rows == [("running", 4.0), ("place 1", 4.0), ("place 2 after people", 8.0), ("place 3 after people", None)]


def test_wrong_options_of_a_sweep_are_refused(paths: Paths) -> None:
    with pytest.raises(UsageError, match="nobody"):
        start_sweep(paths, "--players nobody --name=mine")
    assert (paths.sweeps / "mine.log").exists()
    with pytest.raises(UsageError, match="quot"):
        start_sweep(paths, "--name 'a")


@pytest.mark.slow
def test_a_sweep_is_started_stopped_and_resumed(paths: Paths) -> None:
    sweeps = Sweeps(paths)

    def row(there: Callable[[Work], bool]) -> Work:
        found: list[Work] = []
        eventually(lambda: found.extend(filter(there, sweeps.rows(queue()))) or found)
        return found[0]

    name = start_sweep(paths, "1 2 8 --name mine --device cpu --world 2 --rounds 1")
    assert name == "mine"
    stop_sweep(row(lambda each: each.place == "running"))
    stopped = row(lambda each: each.place == "stopped")
    assert "of 3" in stopped.what
    with pytest.raises(UsageError, match="not running"):
        stop_sweep(stopped)
    start_sweep(paths, f"--resume --name {name}")
    with pytest.raises(UsageError, match="running"):
        rename_sweep(paths, row(lambda each: each.place == "running"), "spring")
    done = row(lambda each: each.place == "done" and "3 of 3" in each.what)
    rename_sweep(paths, done, "spring")
    assert row(lambda each: each.place == "done").sweep == "spring"
    assert sorted(path.name for path in paths.sweeps.glob("*.*l*")) == ["spring.jsonl", "spring.log"]
    (paths.sweeps / "spring.log").unlink()  # as of a sweep that the command line began
    rename_sweep(paths, row(lambda each: each.place == "done"), "autumn")
    assert [path.name for path in paths.sweeps.glob("*.*l*")] == ["autumn.jsonl"]
    with pytest.raises(UsageError, match="cannot be"):
        rename_sweep(paths, done, "../spring")
