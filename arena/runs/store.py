"""The index of results: every finished run, and the best of them. It is rebuilt from the journals if it is lost."""

import logging
import sqlite3
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from arena.errors import ArenaError, StoreError
from arena.machine.fingerprint import this_machine
from arena.paths import VOIDS, files_in, make_folder
from arena.runs.bound import gap_closed
from arena.runs.code_hash import code_hash
from arena.runs.comparisons import Comparison, comparison_of
from arena.runs.headline import by_clock
from arena.runs.index_file import VERSION, connect, opening
from arena.runs.journal import RunHeader, read_events, read_header
from arena.runs.ranking import Measurement, Ranked, ranked
from arena.runs.renamed_voids import RenamedVoids
from arena.runs.results import holds, holds_here
from arena.runs.voids import Void, Voids, read_voids
from arena.workspace.named_kernels import BASELINE
from sandbox.machine.backends import label_in
from sandbox.protocol.events import Finished, Interval, Result
from sandbox.protocol.verdict import Verdict
from sandbox.timing.interval import detectable_percent

_OPEN_ADVICE = (
    "see to its permissions, those of the files beside it and the space left; deleted, they are rebuilt from the runs"
)


class Entry(msgspec.Struct, frozen=True):
    """One finished run."""

    run_id: str
    created: float
    problem_id: int
    slug: str
    player: str
    kernel_path: str
    kernel_name: str
    sha256: str
    device: str
    world: int
    dtype: str
    preset: str
    preset_sizes: bool
    verdict: Verdict
    outcome: str
    """ "faster", "slower", "even", "too noisy", or empty when nothing was timed."""
    speedup: float | None
    """By the clock of the headline: median, then its interval."""
    low: float | None
    high: float | None
    percent: float | None
    """Of the roofline's bound."""
    clock: str = ""
    """The clock of the headline: "call" or "device"; empty when nothing was timed, and for results of older versions."""
    call_sees: float | None = None
    """Smallest detectable difference of end-to-end time, in percent; None if not known."""
    device_sees: float | None = None
    code: str = ""
    """Names the code without comments (`arena.runs.code_hash`); empty for rows whose journal is gone."""
    rounds: int = 0
    """Of the timing."""
    machine: str = ""
    """Its fingerprint (`arena.machine.fingerprint`); runs of versions that recorded none are taken for this machine's."""
    gap_closed: float | None = None
    """Share of the gap between the baseline and the roofline's bound (`arena.runs.bound`)."""
    backend: str = ""
    """The label of the backend that it uses (`sandbox.machine.backends`); empty: none, or it did not pass."""
    other_than: str = ""
    """The run that this one, in a random setting at other sizes, belongs to; empty for all other runs."""
    voided: Void | None = None
    """Why it is in no rank; None: it counts. From the journal of voids, not a column of the index."""

    @property
    def names_code(self) -> str:
        """Names the kernel: its code, or its file where that is not known."""
        return self.code or self.sha256

    @property
    def is_ranked(self) -> bool:
        """At its preset's own sizes. A run at other sizes belongs to another run, also where only its dtype differs."""
        return self.preset_sizes and not self.other_than

    @property
    def holds(self) -> bool | None:
        """As `OtherSize.holds`."""
        return holds_here(self.verdict, self.outcome)


class Standing(msgspec.Struct, frozen=True):
    """A player's best and last results in one problem. Voided runs count in `runs` alone."""

    problem_id: int
    runs: int
    solved: bool
    """At least one PASS."""
    best: Entry | None
    """The right kernel with the highest speedup at a preset's own sizes, all its measurements pooled."""
    last: Entry
    """That counts; where all are voided, the last of these."""
    holds: str = ""
    """Where the best is faster, by its code: at other sizes it is faster in "all", "some" or "none"; empty: not known."""

    @property
    def faster(self) -> bool:
        """The best run's interval lies above 1."""
        return self.best is not None and self.best.outcome == "faster"


def entry_of(header: RunHeader, result: Result) -> Entry:
    """The row of a finished run."""
    speed = by_clock(result.speedup, result.clock)
    call, device = (_sees(result, clock) for clock in ("call", "device"))
    return Entry(
        run_id=header.run_id,
        created=header.created,
        problem_id=header.problem_id,
        slug=header.slug,
        player=header.player,
        kernel_path=header.kernel_path,
        kernel_name=header.kernel_name,
        sha256=header.sha256,
        device=header.setting.device,
        world=header.setting.world,
        dtype=header.setting.dtype,
        preset=header.setting.preset,
        preset_sizes=header.preset_sizes,
        verdict=result.verdict,
        outcome=result.outcome,
        speedup=speed.median if speed else None,
        low=speed.low if speed else None,
        high=speed.high if speed else None,
        percent=result.roofline.percent if result.roofline else None,
        clock=result.clock,
        call_sees=call,
        device_sees=device,
        code=code_hash(header.source, header.files),
        rounds=result.rounds,
        machine=header.machine,
        gap_closed=gap_closed(result),
        backend=label_in(result.labels),
        other_than=header.other_than,
    )


def _sees(result: Result, clock: str) -> float | None:
    """Results that name no clock are of older versions, whose intervals mean something else."""
    interval = by_clock(result.speedup, clock) if result.clock else None
    return detectable_percent(interval) if interval is not None else None


_COLUMNS = Entry.__struct_fields__[:-1]  # the last one, `voided`, is no column
_SELECT = f"select {', '.join(_COLUMNS)} from result"
_INSERT_COMPARISON = "insert or replace into comparison (run_id, json) values (?, ?)"
_INSERT = f"insert or replace into result ({', '.join(_COLUMNS)}) values ({', '.join('?' * len(_COLUMNS))})"


class Store:
    """An open index. Methods block for milliseconds: from an event loop use `asyncio.to_thread`."""

    def __init__(self, path: Path, runs: Path) -> None:
        """Opens or creates the index; a damaged one is put aside and rebuilt from the journals in `runs`.

        Raises:
            StoreError: it can be neither opened nor created.
            FolderUnwritable: its folder cannot be created, or a void cannot be written under a kernel's name of today.
            PathRefused: it is new, and the journals to make it from, or that of the voids, cannot be read.
        """
        make_folder(path.parent)
        self.path = path
        self._voids = path.with_name(VOIDS)
        self.damaged = ""
        """Where a damaged index was kept, in a sentence; empty when it was whole."""
        self._lock = threading.Lock()
        try:
            with opening(path):
                self._open(path, runs)
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"cannot open {path}: {error}", _OPEN_ADVICE) from None

    def _open(self, path: Path, runs: Path) -> None:
        try:
            self._connection, fresh = connect(path)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
            kept = path.rename(path.with_name(f"{path.name}.damaged-{int(time.time())}"))
            self.damaged = f"{path} was damaged: kept as {kept.name}; results are read anew from the journals"
            logging.getLogger(__name__).warning("pkb-arena: %s", self.damaged)
            for suffix in ("-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            self._connection, fresh = connect(path)
        if fresh:
            try:
                self.rebuild(runs)
            except ArenaError:
                self.close()  # its version says that the next process has to fill it
                raise

    def close(self) -> None:
        """Closes the index. May be called twice."""
        with self._lock:
            self._connection.close()

    def record(self, entry: Entry) -> None:
        """Adds a finished run.

        Raises:
            StoreError: it could not be written; the journal still has it.
        """
        self._write(_INSERT, _row(entry))

    def record_comparison(self, comparison: Comparison) -> None:
        """Adds a run of a kernel against the one that its player started from. Raises as `record`."""
        self._write(_INSERT_COMPARISON, _comparison_row(comparison))

    def _write(self, sql: str, values: tuple[object, ...]) -> None:
        try:
            with self._lock, self._connection:
                self._connection.execute(sql, values)
        except sqlite3.Error as error:
            raise StoreError(
                f"cannot write to {self.path}: {error}", "free some space; the run's journal has it all"
            ) from None

    def rebuild(self, runs: Path) -> int:
        """Adds every finished run that has a journal. Returns how many."""
        rows, compared, voids = [], [], RenamedVoids(self._voids)
        for path in files_in(runs, ".jsonl"):
            with suppress(OSError, ValueError):
                header = read_header(path)
                voids.take(header)
                results = [event.result for event in read_events(path) if isinstance(event, Finished)]
                if not header.versus:
                    rows += [_row(entry_of(header, result)) for result in results]
                elif header.origin:
                    compared += [_comparison_row(comparison_of(header, result)) for result in results]
        with self._lock, self._connection:
            self._connection.executemany(_INSERT, rows)
            self._connection.executemany(_INSERT_COMPARISON, compared)
            self._connection.execute(f"pragma user_version = {VERSION}")
        return len(rows)

    def history(self, problem_id: int, player: str | None = "you", limit: int = 200) -> list[Entry]:
        """Runs of a problem by a player, or by all (None), newest first; the baseline's own are left out."""
        return self._query(
            f"{_SELECT} where problem_id = ? and player = coalesce(?, player) and kernel_name != ?"
            " order by created desc, run_id desc limit ?",
            (problem_id, player, BASELINE, limit),
        )

    def kernels(self, prefix: str) -> list[Entry]:
        """All runs of kernels whose code or file has a hash that begins so; the baseline's own are left out."""
        return self._query(
            f"{_SELECT} where kernel_name != ? and (substr(code, 1, ?) = ? or substr(sha256, 1, ?) = ?)"
            " order by created, run_id",
            (BASELINE, len(prefix), prefix, len(prefix), prefix),
        )

    def voided(self) -> list[Entry]:
        """All voided runs, oldest first."""
        if not read_voids(self._voids):
            return []
        return [entry for entry in self._query(f"{_SELECT} order by created, run_id", ()) if entry.voided]

    def entry(self, run_id: str) -> Entry | None:
        """One run, or None."""
        found = self._query(f"{_SELECT} where run_id = ?", (run_id,))
        return found[0] if found else None

    def standings(self, player: str = "you", device: str | None = None) -> dict[int, Standing]:
        """A player's standing in every problem that was run (on one device, or on any), by problem id."""
        by_problem: dict[int, list[Entry]] = {}
        for entry in self.entries(player):
            if device in (None, entry.device):
                by_problem.setdefault(entry.problem_id, []).append(entry)
        return {problem_id: _standing(problem_id, found) for problem_id, found in by_problem.items()}

    def players(self) -> list[str]:
        """Names of all players with a kernel of their own in the store."""
        entries = self._query(f"{_SELECT} where kernel_name != ? group by player order by player", (BASELINE,))
        return [entry.player for entry in entries]

    def entries(self, player: str) -> list[Entry]:
        """All runs of a player, oldest first; the baseline's own are left out."""
        return self._query(
            f"{_SELECT} where player = ? and kernel_name != ? order by created, run_id", (player, BASELINE)
        )

    def best(self) -> dict[int, Entry]:
        """The fastest kernel of any player at a preset's own sizes, by problem id; the baseline's own runs are left out."""
        entries = self._query(
            f"{_SELECT} where kernel_name != ? and verdict = ? and preset_sizes and speedup is not null"
            " order by created, run_id",
            (BASELINE, Verdict.PASS.value),
        )
        return {entry.problem_id: entry for entry in reversed(fastest(entries))}

    def last_timed(self, limit: int) -> list[Entry]:
        """The newest runs, of any player and problem, with their smallest detectable differences."""
        return self._query(
            f"{_SELECT} where call_sees is not null or device_sees is not null"
            " order by created desc, run_id desc limit ?",
            (limit,),
        )

    def comparisons(self) -> list[Comparison]:
        """All runs of kernels against those that their players started from, oldest first; voided ones are left out."""
        rows = self._rows("select json from comparison order by run_id", ())
        voids = read_voids(self._voids)
        found = [msgspec.json.decode(row[0], type=Comparison) for row in rows]
        return [each for each in found if voids.of(each.run_id, each.code) is None]

    def _query(self, sql: str, values: tuple[object, ...]) -> list[Entry]:
        rows = self._rows(sql, values)
        voids = read_voids(self._voids)
        return [_marked(_entry(row), voids) for row in rows]

    def _rows(self, sql: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        try:
            with self._lock:
                return self._connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"cannot read {self.path}: {error}", _OPEN_ADVICE) from None


def fastest(entries: Iterable[Entry]) -> list[Entry]:
    """The right kernels among runs at presets' own sizes, fastest first: each with the figures of all its runs pooled.

    Voided runs are left out, and kernels whose times were too noisy.
    """
    kernels = [_with_pooled(kernel) for kernel in ranked(entries, _measurement)]
    return [entry for entry in kernels if entry.outcome != "too noisy"]


def _measurement(entry: Entry) -> Measurement | None:
    if entry.verdict is not Verdict.PASS or not entry.is_ranked or entry.voided is not None:
        return None
    if entry.speedup is None or entry.low is None or entry.high is None:
        return None
    key = (entry.names_code, entry.problem_id, entry.device, entry.world, entry.dtype, entry.preset, entry.machine)
    return Measurement(key, Interval(entry.speedup, entry.low, entry.high), entry.clock, entry.rounds)


def _with_pooled(kernel: Ranked[Entry]) -> Entry:
    if len(kernel.items) == 1:
        return kernel.item
    median, low, high = msgspec.structs.astuple(kernel.speedup)
    return msgspec.structs.replace(
        kernel.item, speedup=median, low=low, high=high, outcome=kernel.outcome, clock=kernel.clock
    )


def _standing(problem_id: int, entries: list[Entry]) -> Standing:
    counted = [entry for entry in entries if entry.voided is None]
    solved = any(entry.verdict is Verdict.PASS and not entry.other_than for entry in counted)
    best = next(iter(fastest(counted)), None)
    held = _holds(best, counted) if best is not None and best.outcome == "faster" else ""
    return Standing(problem_id, len(entries), solved, best, (counted or entries)[-1], held)


def _holds(best: Entry, entries: list[Entry]) -> str:
    """Where a kernel holds, from the runs at other sizes that belong to its own runs in the same setting."""
    own = {each.run_id for each in entries if _same(each, best)}
    return holds([each for each in entries if each.other_than in own])


def _same(one: Entry, other: Entry) -> bool:
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("names_code", "preset", "preset_sizes", "device", "world", "dtype", "machine", "other_than")
    )


def _row(entry: Entry) -> tuple[object, ...]:
    return tuple(msgspec.structs.astuple(entry)[: len(_COLUMNS)])


def _comparison_row(comparison: Comparison) -> tuple[object, ...]:
    return comparison.run_id, msgspec.json.encode(comparison).decode()


def _marked(entry: Entry, voids: Voids) -> Entry:
    void = voids.of(entry.run_id, entry.names_code)
    return entry if void is None else msgspec.structs.replace(entry, voided=void)


def _entry(row: tuple[object, ...]) -> Entry:
    entry = msgspec.convert(dict(zip(_COLUMNS, row, strict=True)), Entry, strict=False)
    if entry.machine:
        return entry
    return msgspec.structs.replace(entry, machine=this_machine(entry.device).digest)
