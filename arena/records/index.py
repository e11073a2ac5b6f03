"""The index of results: every finished run, in SQLite. It is a cache of the journals and may be deleted at any time.

Opening it reads the journals that it does not know yet. If it is damaged, or has other fields, it is deleted and made anew.
"""

import fcntl
import os
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from arena.errors import StoreError
from arena.paths import VOIDS, Paths, files_in, make_folder
from arena.records.header import read_events, read_header
from arena.records.json_lines import decoder, encode
from arena.records.ranking import Standing, standing_of
from arena.records.run_record import RunRecord, record_of, result_in
from arena.records.voids import read_voids
from arena.workspace.named_kernels import BASELINE
from sandbox.protocol.events import Cancelled, Fatal, Finished, Refused
from sandbox.protocol.verdict import Verdict

_SCHEMA = """
create table if not exists run (
    run_id text primary key, created real, problem_id integer, player text, kind text, verdict text, code text, sha256 text,
    record blob
);
create index if not exists run_by_problem on run (problem_id, player, created);
create table if not exists journal (name text primary key, size integer);
"""
"""run.kind: OWN, or one that is in no list of a player's runs. journal.size: -1 if the index has all of the journal; else
its size when it had no end."""
_OWN, _BASELINE, _COMPARED = "own", "baseline", "compared"
_SHAPE = zlib.crc32(repr((_SCHEMA, msgspec.json.schema(RunRecord))).encode()) & 0x7FFFFFFF
"""Other versions, whose records have other fields, have another number."""
_INSERT = "insert or replace into run values (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_KNOWN = "insert or replace into journal values (?, ?)"
_BUSY_S = 5.0
_FAULTS = (sqlite3.Error, ValueError)
"""What reading or writing an index raises."""
_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_NOT_DAMAGE = _LOCKED | {
    *(sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL),
    *(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_NOLFS, sqlite3.SQLITE_AUTH),
}
"""Errors of the machine and of locks. Flipped bytes can cause nearly every other error of SQLite."""
_OPEN_ADVICE = "see to its permissions, those of the files beside it and the space left; it may be deleted"
_LOCK_ADVICE = "end the program that holds it, or try again"
_WRITE_ADVICE = "see to the free space and its permissions"
_LATER = "the run is added from its journal when the index is opened again"

Answer = TypeVar("Answer")
_decode: Callable[[bytes], RunRecord] = decoder(RunRecord)


class Store:
    """An open index. Methods block for milliseconds: from an event loop use `asyncio.to_thread`."""

    def __init__(self, path: Path, runs: Path, writable: bool = True) -> None:
        """Opens or creates the index, and adds the finished runs in the folder `runs` that it lacks.

        writable: whether files may be written. If not, what is added stays in memory.

        Raises:
            StoreError: it can be neither opened nor created.
            FolderUnwritable: its folder cannot be created.
            MachineError: the journals of the runs cannot be read.
        """
        self.path, self._runs, self._writable = path, runs, writable
        self._voids, self._lock = path.with_name(VOIDS), threading.RLock()
        if writable:
            make_folder(path.parent)
        try:
            self._open()
        except (*_FAULTS, OSError) as error:
            raise StoreError(f"cannot open {path}: {error}", _advice(error, _OPEN_ADVICE)) from None

    def _open(self) -> None:
        """Connects; deletes a damaged index first."""
        with _opening(self.path) if self._writable else nullcontext():
            try:
                self._connect(_connected(self.path) if self._writable else _copied(self.path))
            except _FAULTS as error:
                if not _is_damage(error, self.path):
                    raise
                if self._writable:
                    _delete(self.path)
                self._connect(_connected(self.path if self._writable else Path(":memory:")))

    def _connect(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        try:
            self._inode = self.path.stat().st_ino if self._writable else 0
            if connection.execute("pragma user_version").fetchone()[0] not in (0, _SHAPE):
                raise sqlite3.DatabaseError("its records have other fields")
            connection.executescript(_SCHEMA)
            connection.execute(f"pragma user_version = {_SHAPE}")
            self._add_new_runs()
        except BaseException:
            connection.close()
            raise

    def _add_new_runs(self) -> None:
        """Adds the finished runs whose journals are not known yet, or have grown."""
        known = dict(self._connection.execute("select name, size from journal"))
        records: list[RunRecord] = []
        sizes: list[tuple[str, int]] = []
        for path in files_in(self._runs):
            before = known.get(path.name)
            if before == -1:
                continue
            with suppress(OSError):
                size = path.stat().st_size
                if size != before:
                    found, ended = _read(path)
                    records += found
                    sizes.append((path.name, -1 if ended else size))
        if sizes:
            with self._connection:
                self._connection.executemany(_INSERT, filter(None, map(_row, records)))
                self._connection.executemany(_KNOWN, sizes)

    def _repairing(self, action: Callable[[], Answer]) -> Answer:
        """Returns what `action` returns. If it finds damage, the index is made anew and `action` is called once more."""
        with self._lock:
            try:
                if self._is_ours():
                    return action()
            except _FAULTS as error:
                if not self._writable or not _is_damage(error, self.path):
                    raise
                with _opening(self.path):
                    if self._is_ours():
                        _delete(self.path)
            self._connection.close()
            self._open()
            return action()

    def _is_ours(self) -> bool:
        """Whether the path leads to the open file. It does not after another process has made the index anew."""
        try:
            return not self._writable or self.path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Closes the index. May be called twice."""
        with self._lock:
            self._connection.close()

    def record(self, record: RunRecord, ended: bool = True) -> None:
        """Adds a run with a verdict. A run against another kernel is added only if the player started from that kernel.

        ended: if false, the run goes on measuring. Its journal is then read again when the index is opened.

        Raises:
            StoreError: it could not be written. It is added from its journal when the index is opened again.
        """

        def write() -> None:
            with self._connection:
                if (row := _row(record)) is not None:
                    self._connection.execute(_INSERT, row)
                if ended:
                    self._connection.execute(_KNOWN, (f"{record.run_id}.jsonl", -1))

        try:
            self._repairing(write)
        except (*_FAULTS, OSError) as error:
            advice = f"{_advice(error, _WRITE_ADVICE)}; {_LATER}"
            raise StoreError(f"cannot write to {self.path}: {error}", advice) from None

    # --- queries: the baseline's own runs, and runs against another kernel, are left out ---------------------

    def history(self, problem_id: int, player: str | None = "you", limit: int = 200) -> list[RunRecord]:
        """Runs of a problem by a player, or by all (None), newest first."""
        where = "problem_id = ? and player = coalesce(?, player)"
        return self._query(f"{where} order by created desc, run_id desc limit ?", problem_id, player, limit)

    def kernels(self, prefix: str) -> list[RunRecord]:
        """All runs of kernels whose code hash or file hash begins with `prefix`, oldest first."""
        size = len(prefix)
        where = "(substr(code, 1, ?) = ? or substr(sha256, 1, ?) = ?)"
        return self._query(f"{where} order by created, run_id", size, prefix, size, prefix)

    def voided(self) -> list[RunRecord]:
        """All voided runs, oldest first."""
        if not read_voids(self._voids):
            return []
        return [
            record for record in self._query("true order by created, run_id", kinds=(_OWN, _BASELINE)) if record.voided
        ]

    def standings(self, player: str = "you") -> dict[int, Standing]:
        """A player's standing in every problem that was run, by problem id."""
        return _standings(self.entries(player))

    def players(self) -> list[str]:
        """Names of all players with a kernel of their own in the store."""
        return self._rows("select distinct player from run where kind = ? order by player", (_OWN,), str)

    def entries(self, player: str) -> list[RunRecord]:
        """All runs of a player, oldest first."""
        return self._query("player = ? order by created, run_id", player)

    def best(self) -> dict[int, Standing]:
        """The standing of all players' correct kernels together, by problem id."""
        return _standings(self._query("verdict = ? order by created, run_id", Verdict.PASS.value))

    def last_timed(self, limit: int) -> list[RunRecord]:
        """The newest runs that were timed, of any player and problem."""
        passed = self._query(
            "verdict = ? order by created desc, run_id desc limit ?",
            Verdict.PASS.value,
            4 * limit,
            kinds=(_OWN, _BASELINE),
        )
        return [record for record in passed if record.interval is not None][:limit]

    def comparisons(self) -> list[RunRecord]:
        """All runs of kernels against those that their players started from, oldest first; voided ones are left out."""
        return [record for record in self._query("true order by run_id", kinds=(_COMPARED,)) if not record.voided]

    def _query(self, where: str, *values: object, kinds: tuple[str, ...] = (_OWN,)) -> list[RunRecord]:
        sql = f"select record from run where kind in ({', '.join('?' * len(kinds))}) and {where}"
        found = self._rows(sql, (*kinds, *values), _decode)
        voids = read_voids(self._voids)
        marks = [voids.of(record.run_id, record.code) for record in found]
        return [
            record if mark is None else msgspec.structs.replace(record, voided=mark)
            for record, mark in zip(found, marks, strict=True)
        ]

    def _rows(self, sql: str, values: tuple[object, ...], decode: Callable[[bytes], Answer]) -> list[Answer]:
        try:
            return self._repairing(lambda: [decode(value) for (value,) in self._connection.execute(sql, values)])
        except (*_FAULTS, OSError) as error:
            raise StoreError(f"cannot read {self.path}: {error}", _advice(error, _OPEN_ADVICE)) from None


def stored(paths: Paths, question: Callable[[Store], Answer]) -> Answer | None:
    """Returns the answer of `question` from the index. None: nothing was ever run here; then nothing is created.

    Where no file can be written, the index is made in memory.

    Raises:
        StoreError: it cannot be used.
    """
    if not (paths.database.exists() or paths.runs.exists()):
        return None
    with closing(Store(paths.database, paths.runs, os.access(paths.data, os.W_OK | os.X_OK))) as store:
        return question(store)


def _read(path: Path) -> tuple[list[RunRecord], bool]:
    """Returns the results in a run's journal, and whether it has its end. A file that is no journal has none."""
    found, ended = [], False
    try:
        header = read_header(path)
    except ValueError:
        return [], False
    for event in read_events(path):
        ended = ended or isinstance(event, Finished | Cancelled | Refused | Fatal)
        if (result := result_in(header, event)) is not None:
            found = [record_of(header, result)]  # the last: a run may tell results before its end
    return found, ended


def _standings(records: list[RunRecord]) -> dict[int, Standing]:
    by_problem: dict[int, list[RunRecord]] = {}
    for record in records:
        by_problem.setdefault(record.problem_id, []).append(record)
    return {problem_id: standing_of(problem_id, found) for problem_id, found in by_problem.items()}


def _row(record: RunRecord) -> tuple[object, ...] | None:
    if record.versus and not record.origin:
        return None
    kind = _COMPARED if record.versus else _BASELINE if record.kernel_name == BASELINE else _OWN
    head = (record.run_id, record.created, record.problem_id, record.player, kind)
    return (*head, record.verdict.value, record.code, record.sha256, encode(record.shortened))


@contextmanager
def _opening(path: Path) -> Iterator[None]:
    """Holds a lock while an index is opened and filled: SQLite fails if two processes create an index at once."""
    file = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_S, check_same_thread=False)
    try:
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = normal")
    except BaseException:
        connection.close()
        raise
    return connection


def _copied(path: Path) -> sqlite3.Connection:
    """Returns a copy in memory. Runs that are only in SQLite's log, which is not read, are added from their journals."""
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    if path.is_file():
        with (
            suppress(*_FAULTS),
            closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as file,
        ):
            file.backup(connection)
    return connection


def _delete(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _is_damage(error: BaseException, path: Path) -> bool:
    """Whether an error of `_FAULTS` comes from the contents of the index at `path`."""
    if isinstance(error, sqlite3.ProgrammingError | sqlite3.InterfaceError):
        return False  # such as a closed connection
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    if code & 0xFF == sqlite3.SQLITE_READONLY:  # a flipped byte of the head makes a file read-only, too
        return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    return code & 0xFF not in _NOT_DAMAGE


def _advice(error: Exception, otherwise: str) -> str:
    """Returns what to do. A lock was held for longer than a connection waits."""
    locked = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF in _LOCKED
    return _LOCK_ADVICE if locked else otherwise
