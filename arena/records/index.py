"""The index of results: every finished run, as JSON lines. It is a cache of the journals and may be deleted at any time.

Opening it reads the journals that it does not know yet. If it is damaged, or has other fields, it is made anew.
"""

import os
import secrets
import shutil
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from fcntl import LOCK_EX
from pathlib import Path
from typing import TypeVar

import msgspec

from arena.errors import StoreError, why
from arena.paths import VOIDS, Paths, files_in, make_folder
from arena.records.header import read_events, read_header
from arena.records.json_lines import Follower, LineFile, decoder, encode, read_first
from arena.records.ranking import Standing, fastest, standing_of
from arena.records.run_record import RunRecord, record_of, result_in
from arena.records.voids import read_voids
from arena.workspace.named_kernels import BASELINE
from sandbox.protocol.events import Cancelled, Fatal, Finished, Refused
from sandbox.protocol.verdict import Verdict

_OWN, _BASELINE, _COMPARED = "own", "baseline", "compared"
_SHAPE = f"{zlib.crc32(repr(msgspec.json.schema(RunRecord)).encode()):08x} ".encode()
"""Begins the first line; other versions, whose records have other fields, have another one."""
_ALL = -1
_ADVICE = "see to its permissions and the space left; it may be deleted"
_LATER = "the run is added from its journal when the index is opened again"

Answer = TypeVar("Answer")


class _Key(msgspec.Struct, frozen=True, rename={"problem_id": "id"}):
    """The fields of a record by which runs are found."""

    run_id: str
    created: float
    problem_id: int
    player: str
    verdict: str
    code: str
    sha256: str
    kernel_name: str
    versus: str

    @property
    def kind(self) -> str:
        """OWN, or one that is in no list of a player's runs."""
        return _COMPARED if self.versus else _BASELINE if self.kernel_name == BASELINE else _OWN


_decode_line: Callable[[bytes], tuple[str, int, RunRecord | None]] = decoder(tuple[str, int, RunRecord | None])
"""A line is what the index has of a journal: its name, how far it was read, its result. The last line of a journal counts.

Instead of the size there is _ALL if the end of the journal is known.
"""
_decode_key: Callable[[bytes], tuple[str, int, _Key | None]] = decoder(tuple[str, int, _Key | None])


class Store:
    """An index, with its keys in memory. Methods block for milliseconds: from an event loop use `asyncio.to_thread`."""

    def __init__(self, path: Path, runs: Path, voids: Path | None = None) -> None:
        """Opens or creates the index, and adds the finished runs in the folder `runs` that it lacks.

        voids: None: the file beside the index.

        Raises:
            StoreError: it can be neither opened nor created.
            FolderUnwritable: its folder cannot be created.
            MachineError: the journals of the runs cannot be read.
        """
        self.path, self._runs, self._voids = path, runs, voids or path.with_name(VOIDS)
        self._lock = threading.RLock()
        self._begin(b"")
        make_folder(path.parent)
        with self._opened("open", _ADVICE) as file:
            self._add_new_runs(file)

    @contextmanager
    def _opened(self, what: str, advice: str) -> Iterator[LineFile]:
        """Locks the file, and reads what was added since. Raises StoreError."""
        try:
            with self._lock, closing(LineFile(self.path, LOCK_EX)) as file:
                self._read_on(file)
                yield file
        except OSError as error:
            raise StoreError(f"cannot {what} {self.path}: {why(error)}", advice) from None

    def _read_on(self, file: LineFile) -> None:
        """Reads the lines that are not known yet. A file that is no index, or a damaged one, is made anew."""
        try:
            head = read_first(self.path, bytes)
            if not head.startswith(_SHAPE):
                raise ValueError("it is no index, or its records have other fields")
            if head != self._head:
                self._begin(head)
            while lines := list(self._follower.more()):
                for line in lines:
                    if line.number > 1:
                        journal, self._known[journal], key = _decode_key(line.data)
                        if key is not None:
                            self._keys[key.run_id] = key, line.offset
        except ValueError:
            self._make_anew(file)

    def _begin(self, head: bytes) -> None:
        self._head, self._follower = head, Follower(self.path)
        self._known: dict[str, int] = {}
        self._keys: dict[str, tuple[_Key, int]] = {}
        """By run: its key, and the offset of its line."""

    def _make_anew(self, file: LineFile) -> None:
        head = _SHAPE + secrets.token_hex(8).encode()  # other processes see by it that they must begin again
        file.cut(0)
        file.append(head, sync=False)
        self._begin(head + b"\n")
        self._add_new_runs(file)

    def _add_new_runs(self, file: LineFile) -> None:
        """Adds the finished runs whose journals are not known yet, or have grown."""
        for path in files_in(self._runs):
            if (before := self._known.get(path.name)) != _ALL:
                try:
                    if (size := path.stat().st_size) == before:
                        continue
                    found, ended = _read(path)
                except OSError:
                    continue
                self._append(file, path.name, _ALL if ended else size, found)
        self._read_on(file)

    def _append(self, file: LineFile, journal: str, size: int, record: RunRecord | None) -> None:
        listed = record.shortened if record is not None and (record.origin or not record.versus) else None
        file.append(encode((journal, size, listed)), sync=False)

    def record(self, record: RunRecord, ended: bool = True) -> None:
        """Adds a run with a verdict. A run against another kernel is added only if the player started from that kernel.

        ended: if false, the run goes on measuring. Its journal is then read again when the index is opened.

        Raises:
            StoreError: it could not be written. It is added from its journal when the index is opened again.
        """
        with self._opened("write to", f"{_ADVICE}; {_LATER}") as file:
            self._append(file, f"{record.run_id}.jsonl", _ALL if ended else 0, record)

    # --- queries: the baseline's own runs, and runs against another kernel, are left out ---------------------

    def history(self, problem_id: int, player: str | None = "you", limit: int = 200) -> list[RunRecord]:
        """Runs of a problem by a player, or by all (None), newest first."""
        return self._query(lambda key: key.problem_id == problem_id and player in (None, key.player), newest=limit)

    def kernels(self, prefix: str) -> list[RunRecord]:
        """All runs of kernels whose code hash or file hash begins with `prefix`, oldest first."""
        return self._query(lambda key: key.code.startswith(prefix) or key.sha256.startswith(prefix))

    def voided(self) -> list[RunRecord]:
        """All voided runs, oldest first."""
        if not read_voids(self._voids):
            return []
        return [record for record in self._query(lambda key: True, (_OWN, _BASELINE)) if record.voided]

    def standings(self, player: str = "you") -> dict[int, Standing]:
        """A player's standing in every problem that was run, by problem id."""
        by_problem: dict[int, list[RunRecord]] = {}
        for record in self.entries(player):
            by_problem.setdefault(record.problem_id, []).append(record)
        return {problem_id: standing_of(problem_id, found) for problem_id, found in by_problem.items()}

    def players(self) -> list[str]:
        """Names of all players with a kernel of their own in the store."""
        with self._opened("read", _ADVICE):
            return sorted({key.player for key, _ in self._keys.values() if key.kind == _OWN})

    def entries(self, player: str) -> list[RunRecord]:
        """All runs of a player, oldest first."""
        return self._query(lambda key: key.player == player)

    def best(self) -> dict[int, RunRecord]:
        """The fastest kernel of any player at a preset's own sizes, by problem id."""
        passed = self._query(lambda key: key.verdict == Verdict.PASS)
        return {record.problem_id: record for record in reversed(fastest(passed))}

    def last_timed(self, limit: int) -> list[RunRecord]:
        """The newest runs that were timed, of any player and problem."""
        passed = self._query(lambda key: key.verdict == Verdict.PASS, (_OWN, _BASELINE), newest=4 * limit)
        return [record for record in passed if record.interval is not None][:limit]

    def comparisons(self) -> list[RunRecord]:
        """All runs of kernels against those that their players started from, oldest first; voided ones are left out."""
        return [record for record in self._query(lambda key: True, (_COMPARED,)) if not record.voided]

    def _query(
        self, wanted: Callable[[_Key], bool], kinds: tuple[str, ...] = (_OWN,), newest: int | None = None
    ) -> list[RunRecord]:
        """Returns the runs that are wanted, oldest first. newest: that many at the most, newest first."""
        with self._opened("read", _ADVICE) as file:
            try:
                found = self._records(wanted, kinds, newest)
            except ValueError:  # it was damaged in a place that no key comes from
                self._make_anew(file)
                found = self._records(wanted, kinds, newest)
        voids = read_voids(self._voids)
        marks = [voids.of(record.run_id, record.code) for record in found]
        return [
            record if mark is None else msgspec.structs.replace(record, voided=mark)
            for record, mark in zip(found, marks, strict=True)
        ]

    def _records(self, wanted: Callable[[_Key], bool], kinds: tuple[str, ...], newest: int | None) -> list[RunRecord]:
        keys = (pair for pair in self._keys.values() if pair[0].kind in kinds and wanted(pair[0]))
        places = sorted(((key.created, key.run_id, at) for key, at in keys), reverse=newest is not None)
        found = []
        with self.path.open("rb") as file:
            for _, _, at in places[:newest]:
                file.seek(at)
                if (record := _decode_line(file.readline())[2]) is not None:
                    found.append(record)
        return found


def stored(paths: Paths, question: Callable[[Store], Answer]) -> Answer | None:
    """Returns the answer of `question` from the index. None: nothing was ever run here; then nothing is created.

    Where it cannot be written, a copy in a temporary folder is asked.

    Raises:
        StoreError: it cannot be used.
    """
    if not (paths.index.exists() or paths.runs.exists()):
        return None
    if os.access(paths.data, os.W_OK | os.X_OK):
        return question(Store(paths.index, paths.runs))
    with tempfile.TemporaryDirectory(prefix="pkb-index-") as folder:
        copy = Path(folder, paths.index.name)
        with suppress(OSError):
            shutil.copyfile(paths.index, copy)
        return question(Store(copy, paths.runs, paths.voids))


def _read(path: Path) -> tuple[RunRecord | None, bool]:
    """Returns the result in a run's journal, and whether it has its end. A file that is no journal has none."""
    found, ended = None, False
    try:
        header = read_header(path)
    except ValueError:
        return None, False
    for event in read_events(path):
        ended = ended or isinstance(event, Finished | Cancelled | Refused | Fatal)
        if (result := result_in(header, event)) is not None:
            found = record_of(header, result)  # the last: a run may tell results before its end
    return found, ended
