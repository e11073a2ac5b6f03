"""Journals of runs that passed, and single entries of an index, for tests of stored results without a judge."""

import time
from pathlib import Path
from typing import Any

from arena.duel.events import DuelHeader, DuelPlayer
from arena.models.budget import Spent
from arena.paths import Paths
from arena.players.trace import TraceHeader
from arena.records.code_hash import code_hash
from arena.records.header import RunHeader
from arena.records.index import Store
from arena.records.json_lines import Journal
from arena.records.run_record import RunRecord
from arena.sweep.journal import SweepJournal
from arena.sweep.records import Cell, CellResult
from benchmarks.rows import RunRow
from problems.catalogue import HOME
from sandbox.protocol.events import Finished, Interval, Result, Seconds, Setting, Speedup
from sandbox.protocol.verdict import Verdict

ALL_REDUCE = Setting(str(HOME / "collective" / "allreduce"), "tiny", {"M": 128, "N": 256}, 2, "cpu", "float32")
"""That of tests with real ranks."""
SETTING = Setting(problem_dir="/p", preset="tiny", sizes={"M": 8}, world=2, device="cpu", dtype="bfloat16")


def run_row(verdict: str, outcome: str, call: Interval, device: Interval | None, **more: Any) -> RunRow:
    """Returns a row of a benchmark. more: its size, its kernel, its baseline's times, and other fields."""
    known = {"id": 13, "problem": "gemm_allreduce", "sizes": {}, "world": 2, "dtype": "bfloat16", "size": "tiny"} | more
    speedup = Speedup(call, device) if verdict == "PASS" else None
    return RunRow(verdict=verdict, outcome=outcome, speedup=speedup, **known)


def journal_of(path: Path, *found: CellResult) -> str:
    """Writes the journal of a sweep with these results. Returns its path."""
    journal = SweepJournal(path, path.stem)
    for each in found:
        journal.append(each)
    journal.close()
    return str(path)


def header(run_id: str = "r1", source: str = "", player: str = "you", **more: Any) -> RunHeader:
    """Returns the header of a run of the first problem. more: other fields of it."""
    known = {
        "created": 1.0, "problem_id": 1, "slug": "allreduce", "category": "collective", "kernel_name": "k.py", "kernel_path": "",
        "sha256": code_hash(f"file of {source}"), "setting": SETTING, "machine": "m",
    }  # fmt: skip
    return RunHeader(run_id=run_id, source=source, player=player, **(known | more))


def duel_header(left: str, right: str, duel_id: str = "d", **more: Any) -> DuelHeader:
    """Returns the header of a duel between two files of these names. more: other fields of it."""
    known = {
        "created": 1.0, "problem_id": 1, "slug": "allreduce", "title": "", "category": "collective", "setting": SETTING,
        "left": DuelPlayer("file", left), "right": DuelPlayer("file", right),
    }  # fmt: skip
    return DuelHeader(duel_id=duel_id, **(known | more))


def trace_header(trace_id: str, player: str, **more: Any) -> TraceHeader:
    """Returns the header of a model's trace at the first problem. more: other fields of it."""
    known = {
        "created": 1.0, "problem_id": 1, "slug": "allreduce", "category": "collective", "provider": "p", "model": "m",
        "prompt_version": "v1", "prompt_sha256": "", "shots": 0, "setting": SETTING, "steps": 2,
    }  # fmt: skip
    return TraceHeader(trace_id=trace_id, player=player, **(known | more))


def result(verdict: Verdict = Verdict.PASS, call: Interval | None = None, **more: Any) -> Result:
    """Returns a result without a failure. call: the speedup, end-to-end; more: other fields."""
    speedup = None if call is None else Speedup(call=call, device=None)
    return Result(**({"verdict": verdict, "detail": "", "failure": None, "speedup": speedup, "sealed": True} | more))


def passed(speedup: float) -> Result:
    """Returns a PASS that is faster than the baseline."""
    call = Interval(speedup, speedup - 0.1, speedup + 0.1)
    return result(call=call, paper_rule="match", outcome="faster", clock="call", rounds=9)


def cell_result(cell: Cell, verdict: str = "PASS", **more: Any) -> CellResult:
    """Returns a cell's line in the journal of a sweep. more: other fields of it."""
    known = {
        "key": cell.key("", "m"), "problem_id": 1, "category": "collective", "class_": "C", "sha256": "", "machine": "m",
        "worker": "local", "detail": "", "report": None, "spent": Spent(), "trace_id": "", "seconds": 1.0,
    }  # fmt: skip
    return CellResult(cell=cell, verdict=verdict, **(known | more))


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
    """Writes a run's journal, from which the index is built. speedup: 0: the kernel was wrong."""
    paths.runs.mkdir(parents=True, exist_ok=True)
    first = header(run_id, source, player, created=created, machine=machine)
    journal = Journal(paths.runs / f"{run_id}.jsonl", first, lambda error: None)
    journal.append(
        Finished(run_id=run_id, sha256="", result=passed(speedup) if speedup else result(Verdict.WRONG_RESULT))
    )
    journal.close()
