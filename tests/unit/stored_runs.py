"""Journals of runs that passed, and single entries of an index, for tests of stored results without a judge."""

import time
from typing import Any

from arena.paths import Paths
from arena.records.code_hash import code_hash
from arena.records.header import RunHeader
from arena.records.index import Store
from arena.records.json_lines import Journal
from arena.records.run_record import RunRecord
from sandbox.protocol.events import Finished, Interval, Result, Seconds, Setting, Speedup
from sandbox.protocol.verdict import Verdict

SETTING = Setting(problem_dir="/p", preset="tiny", sizes={"M": 8}, world=2, device="cpu", dtype="bfloat16")


def header(run_id: str, source: str, player: str = "you", created: float = 1.0, machine: str = "m") -> RunHeader:
    """Returns the header of a run of the first problem."""
    return RunHeader(
        run_id=run_id, created=created, problem_id=1, slug="allreduce", category="collective", player=player,
        kernel_name="k.py", kernel_path="", sha256=code_hash(f"file of {source}"), source=source, setting=SETTING,
        machine=machine,
    )  # fmt: skip


def passed(speedup: float) -> Result:
    """Returns a PASS that is faster than the baseline."""
    return Result(
        verdict=Verdict.PASS, detail="", failure=None, paper_rule="match", error=None, baseline_us=None, contender_us=None,
        speedup=Speedup(call=Interval(speedup, speedup - 0.1, speedup + 0.1), device=None), roofline=None,
        seconds=Seconds(), jail="", sealed=True, outcome="faster", clock="call", rounds=9,
    )  # fmt: skip


def record(run_id: str, player: str = "you", faster: float | None = None, **more: Any) -> RunRecord:
    """Returns the record of a run that passed; with a speedup, of one that was timed end-to-end."""
    timed = Speedup(call=Interval(faster, faster - 0.1, faster + 0.1), device=None) if faster is not None else None
    known = {
        "created": time.time(), "problem_id": 1, "slug": "allreduce", "category": "collective", "kernel": "k.py",
        "kernel_name": player, "sha256": "0" * 64, "code": "0" * 64, "device": "cpu", "world": 2, "dtype": "bfloat16",
        "preset": "tiny", "sizes": {}, "verdict": Verdict.PASS, "detail": "", "failure": None, "paper_rule": None, "error": None,
        "speedup": timed, "outcome": "faster" if timed else "", "clock": "call" if timed else "", "baseline_us": None,
        "contender_us": None, "roofline": None, "seconds": Seconds(), "jail": "", "sealed": True,
    }  # fmt: skip
    return RunRecord(run_id=run_id, player=player, **(known | more))


def entry_in(store: Store, run_id: str) -> RunRecord | None:
    """Returns a run's entry in the index, whoever the player is; None if it has none."""
    found = (entry for player in store.players() for entry in store.entries(player))
    return next((entry for entry in found if entry.run_id == run_id), None)


def ran(
    paths: Paths,
    run_id: str,
    source: str,
    speedup: float,
    player: str = "you",
    created: float = 1.0,
    machine: str = "m",
) -> None:
    """Writes a run's journal, from which the index is built."""
    paths.runs.mkdir(parents=True, exist_ok=True)
    first = header(run_id, source, player, created, machine)
    journal = Journal(paths.runs / f"{run_id}.jsonl", first, lambda error: None)
    journal.append(Finished(run_id=run_id, sha256="", result=passed(speedup)))
    journal.close()
