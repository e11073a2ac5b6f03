"""The index of results: every finished run, and the best ones. It is rebuilt from the journals if lost, stale or damaged."""

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from arena.errors import StoreError
from arena.paths import VOIDS, Paths, files_in, make_folder
from arena.records.comparisons import Comparison, comparison_of
from arena.records.header import read_events, read_header
from arena.records.index_file import (
    FAULTS,
    VERSION,
    connect,
    connect_without_writing,
    is_damage,
    is_locked,
    mark_stale,
    opening,
)
from arena.records.run_record import Entry, entry_of
from arena.records.standings import Standing, fastest, standing_of
from arena.records.voids import Voids, read_voids
from arena.workspace.named_kernels import BASELINE
from sandbox.protocol.events import Finished
from sandbox.protocol.verdict import Verdict

_OPEN_ADVICE = (
    "see to its permissions, those of the files beside it and the space left; deleted, they are rebuilt from the runs"
)
_LOCK_ADVICE = "end the program that holds it, or try again"
_WRITE_ADVICE = "see to the free space and its permissions"
_LATER = "the run is added from its journal when the index is opened again"

Answer = TypeVar("Answer")

_COLUMNS = Entry.__struct_fields__[:-1]  # the last one, `voided`, is no column
_SELECT = f"select {', '.join(_COLUMNS)} from result"
_INSERT_COMPARISON = "insert or replace into comparison (run_id, json) values (?, ?)"
_INSERT = f"insert or replace into result ({', '.join(_COLUMNS)}) values ({', '.join('?' * len(_COLUMNS))})"


class Store:
    """An open index. Methods block for milliseconds: from an event loop use `asyncio.to_thread`."""

    def __init__(self, path: Path, runs: Path) -> None:
        """Opens or creates the index. A damaged one is renamed, and rebuilt from the journals in `runs`.

        Damage that a later call finds is repaired in the same way.

        Raises:
            StoreError: it can be neither opened nor created.
            FolderUnwritable: its folder cannot be created.
            PathRefused: the index is new, and the journals of the runs cannot be read.
        """
        make_folder(path.parent)
        self.path, self._runs = path, runs
        self._voids = path.with_name(VOIDS)
        self.damaged = ""
        """Where a damaged index was kept, in a sentence; empty if the index was not damaged."""
        self._lock = threading.RLock()
        try:
            with opening(path):
                self._open()
        except (*FAULTS, OSError) as error:
            raise StoreError(f"cannot open {path}: {error}", _advice(error, _OPEN_ADVICE)) from None

    def _open(self) -> None:
        """Connects, and repairs a damaged index. The caller holds the lock of `opening`."""
        try:
            self._connect()
        except FAULTS as error:
            if not is_damage(error, self.path):
                raise
            self._put_aside()
            self._connect()

    def _connect(self) -> None:
        self._connection, to_rebuild = connect(self.path)
        try:
            self._inode = self.path.stat().st_ino
            if to_rebuild:
                self.rebuild(self._runs)
        except BaseException:
            self.close()  # its version makes the next process fill it
            raise

    def _put_aside(self) -> None:
        path = self.path
        kept = path.rename(path.with_name(f"{path.name}.damaged-{int(time.time())}"))
        self.damaged = f"{path} was damaged: kept as {kept.name}; results are read anew from the journals"
        logging.getLogger(__name__).warning("pkb-arena: %s", self.damaged)
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)

    def _repairing(self, action: Callable[[], Answer]) -> Answer:
        """Returns what `action` returns. If it finds damage, the index is repaired and `action` is called once more."""
        with self._lock:
            if self._is_ours():
                try:
                    return action()
                except FAULTS as error:
                    if not is_damage(error, self.path):
                        raise
            with opening(self.path):
                self._connection.close()
                if self._is_ours():
                    self._put_aside()
                self._open()
            return action()

    def _is_ours(self) -> bool:
        """Whether the path leads to the open file. It does not after another process has repaired the index."""
        try:
            return self.path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Closes the index. May be called twice."""
        with self._lock:
            self._connection.close()

    def record(self, entry: Entry) -> None:
        """Adds a finished run.

        Raises:
            StoreError: it could not be written. It is added from its journal when the index is opened again.
        """
        self._write(_INSERT, _row(entry))

    def record_comparison(self, comparison: Comparison) -> None:
        """Adds a run of a kernel against the one that its player started from. Raises as `record`."""
        self._write(_INSERT_COMPARISON, _comparison_row(comparison))

    def _write(self, sql: str, values: tuple[object, ...]) -> None:
        def write() -> None:
            with self._connection:
                self._connection.execute(sql, values)

        try:
            self._repairing(write)
        except (*FAULTS, OSError) as error:
            mark_stale(self.path)
            advice = f"{_advice(error, _WRITE_ADVICE)}; {_LATER}"
            raise StoreError(f"cannot write to {self.path}: {error}", advice) from None

    def rebuild(self, runs: Path) -> int:
        """Adds every finished run that has a journal. Returns how many."""
        rows, compared = [], []
        for path in files_in(runs, ".jsonl"):
            with suppress(OSError, ValueError):
                header = read_header(path)
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
        """All runs of kernels whose code hash or file hash begins with `prefix`; the baseline's own are left out."""
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

    def standings(self, player: str = "you") -> dict[int, Standing]:
        """A player's standing in every problem that was run, by problem id."""
        by_problem: dict[int, list[Entry]] = {}
        for entry in self.entries(player):
            by_problem.setdefault(entry.problem_id, []).append(entry)
        return {problem_id: standing_of(problem_id, found) for problem_id, found in by_problem.items()}

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
        """The newest runs that have a smallest detectable difference, of any player and problem."""
        return self._query(
            f"{_SELECT} where call_sees is not null or device_sees is not null"
            " order by created desc, run_id desc limit ?",
            (limit,),
        )

    def comparisons(self) -> list[Comparison]:
        """All runs of kernels against those that their players started from, oldest first; voided ones are left out."""
        found = self._rows("select json from comparison order by run_id", (), _comparison)
        voids = read_voids(self._voids)
        return [each for each in found if voids.of(each.run_id, each.code) is None]

    def _query(self, sql: str, values: tuple[object, ...]) -> list[Entry]:
        entries = self._rows(sql, values, _entry)
        voids = read_voids(self._voids)
        return [_marked(entry, voids) for entry in entries]

    def _rows(self, sql: str, values: tuple[object, ...], decode: Callable[[tuple[Any, ...]], Answer]) -> list[Answer]:
        try:
            return self._repairing(lambda: [decode(row) for row in self._connection.execute(sql, values).fetchall()])
        except (*FAULTS, OSError) as error:
            raise StoreError(f"cannot read {self.path}: {error}", _advice(error, _OPEN_ADVICE)) from None


class ReadOnlyStore(Store):
    """The index in a folder that this user cannot write: only for queries, and nothing is repaired."""

    def __init__(self, path: Path, runs: Path) -> None:
        """Opens the index, or reads the journals in `runs` into memory.

        Raises:
            PathRefused: the journals of the runs cannot be read.
        """
        self.path, self.damaged = path, ""
        self._voids, self._lock = path.with_name(VOIDS), threading.RLock()
        self._connection, to_fill = connect_without_writing(path)
        if to_fill:
            self.rebuild(runs)

    def _repairing(self, action: Callable[[], Answer]) -> Answer:
        with self._lock:
            return action()


def stored(paths: Paths, question: Callable[[Store], Answer], rebuild: bool = False) -> Answer | None:
    """Returns the answer of `question` from the index. None: there is no index; then nothing is created.

    Where no file can be written, the index is as `ReadOnlyStore`, from the journals if there is no file.

    question: it only reads, because the folder may not be writable.
    rebuild: whether a missing index is rebuilt if there is a folder of journals.

    Raises:
        StoreError: it cannot be used.
    """
    writable = os.access(paths.data, os.W_OK | os.X_OK)
    if not (paths.database.exists() or ((rebuild or not writable) and paths.runs.exists())):
        return None
    store = (Store if writable else ReadOnlyStore)(paths.database, paths.runs)
    try:
        return question(store)
    finally:
        store.close()


def _advice(error: Exception, otherwise: str) -> str:
    return _LOCK_ADVICE if is_locked(error) else otherwise


def _row(entry: Entry) -> tuple[object, ...]:
    return tuple(msgspec.structs.astuple(entry)[: len(_COLUMNS)])


def _comparison_row(comparison: Comparison) -> tuple[object, ...]:
    return comparison.run_id, msgspec.json.encode(comparison).decode()


def _comparison(row: tuple[Any, ...]) -> Comparison:
    return msgspec.json.decode(str(row[0]), type=Comparison)


def _marked(entry: Entry, voids: Voids) -> Entry:
    void = voids.of(entry.run_id, entry.code)
    return entry if void is None else msgspec.structs.replace(entry, voided=void)


def _entry(row: tuple[object, ...]) -> Entry:
    return msgspec.convert(dict(zip(_COLUMNS, row, strict=True)), Entry, strict=False)
