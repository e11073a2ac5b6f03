"""The database file of the index of results: its schema, and the upgrade of files of older versions."""

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
    """Returns the connection, and whether the index is new or of an older version. The caller holds the lock."""
    connection = sqlite3.connect(path, timeout=_BUSY_S, check_same_thread=False)
    version = connection.execute("pragma user_version").fetchone()[0]
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = normal")
    if version:
        _add_columns(connection)
    connection.executescript(_SCHEMA)
    return connection, version < VERSION


def _add_columns(connection: sqlite3.Connection) -> None:
    """Adds the columns that an index of an older version lacks."""
    with connection:
        for name in _missing(connection):
            connection.execute(f"alter table result add column {name} {_ADDED[name]}")


def _missing(connection: sqlite3.Connection) -> list[str]:
    there = {row[1] for row in connection.execute("pragma table_info(result)")}
    return [name for name in _ADDED if there and name not in there]
