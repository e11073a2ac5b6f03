"""The database file of the index of results: its schema, upgrades of older files, and what counts as damage."""

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

_SCHEMA = """
create table if not exists result (
    run_id text primary key,
    created real not null,
    problem_id integer not null,
    slug text not null,
    player text not null,
    kernel_path text not null,
    kernel_name text not null,
    sha256 text not null,
    device text not null,
    world integer not null,
    dtype text not null,
    preset text not null,
    preset_sizes integer not null,
    verdict text not null,
    outcome text not null,
    speedup real,
    low real,
    high real,
    percent real,
    clock text not null default '',
    call_sees real,
    device_sees real,
    code text not null default '',
    rounds integer not null default 0,
    machine text not null default '',
    gap_closed real,
    other_than text not null default '',
    backend text not null default ''
);
create table if not exists comparison (run_id text primary key, json text not null);
create index if not exists result_by_problem on result (problem_id, player, created);
"""
VERSION = 7
"""Up to version 6, the hash of code depended on the version of Python."""
_ADDED = {
    "clock": "text not null default ''",
    "call_sees": "real",
    "device_sees": "real",
    "code": "text not null default ''",
    "rounds": "integer not null default 0",
    "machine": "text not null default ''",
    "gap_closed": "real",
    "other_than": "text not null default ''",
    "backend": "text not null default ''",
}
"""Columns that indices of older versions lack."""
_BUSY_S = 5.0
FAULTS = (sqlite3.Error, UnicodeDecodeError, msgspec.DecodeError)
"""What reading or writing an index raises."""
_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_NOT_DAMAGE = _LOCKED | {
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_NOLFS,
    sqlite3.SQLITE_AUTH,
}
"""Errors of the machine and of locks. Flipped bytes can cause nearly every other error of SQLite."""


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """Holds a lock while an index is opened and filled: SQLite fails if two processes create an index at once.

    Raises:
        OSError: the lock cannot be taken.
    """
    file = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def connect(path: Path) -> tuple[sqlite3.Connection, bool]:
    """Returns the connection, and whether the index must be rebuilt: it is new, stale or of an older version.

    The caller holds the lock.

    Raises:
        sqlite3.Error, UnicodeDecodeError: the index cannot be used, or is damaged (`is_damage`).
        OSError: the mark of a stale index cannot be removed.
    """
    connection = sqlite3.connect(path, timeout=_BUSY_S, check_same_thread=False)
    try:
        version = connection.execute("pragma user_version").fetchone()[0]
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = normal")
        if version:
            _add_columns(connection)
        connection.executescript(_SCHEMA)
        mark = _stale_mark(path)
        if mark.exists():
            version = min(version, VERSION - 1)
            # Before the mark is removed: the index stays stale if this process dies before the rebuild.
            connection.execute(f"pragma user_version = {version}")
            mark.unlink()
    except BaseException:
        connection.close()
        raise
    return connection, version < VERSION


def connect_without_writing(path: Path) -> tuple[sqlite3.Connection, bool]:
    """Returns a connection to an index in a folder that is not writable, and whether it is to be filled.

    Where the file lacks runs or cannot be used, the index is a new one in memory.
    """
    log = path.with_name(f"{path.name}-wal")  # SQLite does not read it without writing
    if path.is_file() and not (log.exists() and log.stat().st_size) and not _stale_mark(path).exists():
        uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        with suppress(*FAULTS):
            connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
            if connection.execute("pragma user_version").fetchone()[0] == VERSION:
                return connection, False
            connection.close()
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    connection.executescript(_SCHEMA)
    return connection, True


def mark_stale(path: Path) -> None:
    """Makes the next process that opens the index rebuild it. Does nothing if the mark cannot be written."""
    with suppress(OSError):
        _stale_mark(path).touch(mode=0o600)


def is_damage(error: BaseException, path: Path) -> bool:
    """Whether an error of `FAULTS` comes from the contents of the index at `path`."""
    if isinstance(error, sqlite3.ProgrammingError | sqlite3.InterfaceError):
        return False  # such as a closed connection
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    if code & 0xFF == sqlite3.SQLITE_READONLY:  # a flipped byte of the head makes a file read-only, too
        return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    return code & 0xFF not in _NOT_DAMAGE


def is_locked(error: BaseException) -> bool:
    """Whether another program held the index for longer than a connection waits."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF in _LOCKED


def _stale_mark(path: Path) -> Path:
    return path.with_name(f"{path.name}.stale")


def _add_columns(connection: sqlite3.Connection) -> None:
    """Adds the columns that an index of an older version lacks."""
    with connection:
        for name in _missing(connection):
            connection.execute(f"alter table result add column {name} {_ADDED[name]}")


def _missing(connection: sqlite3.Connection) -> list[str]:
    there = {row[1] for row in connection.execute("pragma table_info(result)")}
    return [name for name in _ADDED if there and name not in there]
