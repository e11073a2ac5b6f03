"""Voids a run, a sweep's result, a duel, or a kernel with all its results; or takes that back."""

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from arena.board.scorecard import results
from arena.duel.events import DuelHeader
from arena.duel.journal import read_any_header
from arena.errors import UsageError
from arena.paths import Paths, files_in
from arena.records.header import RunHeader
from arena.records.index import Store, stored
from arena.records.json_lines import append_line
from arena.records.run_record import RunRecord, view
from arena.records.voids import Void, clean_note, read_voids
from arena.sweep.journal import JournalDamaged, journals
from arena.sweep.records import CellResult
from arena.words.untrusted_text import printable

LEAST_HASH = 6
"""Least number of characters of a kernel's hash that identify it."""
_HASH = re.compile(rf"[0-9a-f]{{{LEAST_HASH},64}}")
LAST = "last"


class VoidTarget(msgspec.Struct, frozen=True):
    """A result or a kernel. Either `run` or `code` is set."""

    run: str
    """Id of a run or a duel."""
    code: str
    results: list[str]
    """Ids of the runs and duels that the mark is on, if this machine has them."""
    players: list[str] = []
    """Players of these results; only known for a kernel."""
    asked: str = ""
    """The part of the kernel's hash by which it was named."""

    @property
    def words(self) -> str:
        """ "result ID", "kernel 12ab34cd56ef (3 results of house, you)"."""
        if self.run:
            return f"result {self.run}"
        of = f" of {', '.join(map(printable, self.players))}" if self.players else ""
        return f"kernel {self.asked or self.code[:12]} ({len(self.results)} result{'s' * (len(self.results) != 1)}{of})"


def find_target(paths: Paths, word: str) -> VoidTarget:
    """Returns the target that a word names.

    word: the id of a run, a duel or a sweep's result, a journal file, `last`, or the start of a kernel's hash.

    Raises:
        UsageError: the word names nothing, or more than one kernel.
        ArenaError: results cannot be read.
    """
    if (run := _run_named(paths, word)) is not None:
        return VoidTarget(run, "", [run])
    swept = [result for result in _swept(paths) if result.run_id]
    by_id = {result.run_id for result in swept if word in (result.key, result.run_id)}
    if len(by_id) == 1:
        run = by_id.pop()
        return VoidTarget(run, "", [run])
    if _HASH.fullmatch(word):
        named = {entry.code for entry in _kernels(paths, word)}
        named |= {result.code for result in swept if word in (result.code[: len(word)], result.sha256[: len(word)])}
        if len(named) > 1:
            raise UsageError(f"{len(named)} kernels have a hash that begins with {word}", "name more of its characters")
        if named:
            return msgspec.structs.replace(_kernel(paths, named.pop(), swept), asked=word)
    raise UsageError(
        f"there is no result and no kernel {word!r}",
        f"name the id of a run, of a sweep's result or of a duel, or {LEAST_HASH} characters or more of a kernel's hash",
    )


def _kernel(paths: Paths, code: str, swept: Iterable[CellResult]) -> VoidTarget:
    entries = _kernels(paths, code)
    revisions = {entry.sha256[:8] for entry in entries}  # as the board names them
    found = {(entry.run_id, entry.player) for entry in entries}
    found |= {(result.run_id, result.cell.player) for result in swept if result.code == code}
    results, players = sorted({run for run, _ in found}), sorted({player for _, player in found})
    return VoidTarget("", code, results, players, revisions.pop() if len(revisions) == 1 else "")


def _run_named(paths: Paths, word: str) -> str | None:
    """Returns the id of the run or duel with this id, or with this journal file; None if there is none."""
    if word == LAST:
        found = files_in(paths.runs)
        return found[-1].stem if found else None
    for path in (Path(word), paths.runs / f"{word}.jsonl", paths.duels / f"{word}.jsonl"):
        with suppress(OSError, ValueError):
            match read_any_header(path):
                case RunHeader(run_id=name) | DuelHeader(duel_id=name):
                    return name
    return None


def voided(paths: Paths) -> list[RunRecord]:
    """All voided runs, oldest first."""
    return stored(paths, Store.voided) or []


def _kernels(paths: Paths, prefix: str) -> list[RunRecord]:
    return stored(paths, lambda store: store.kernels(prefix)) or []


def _swept(paths: Paths) -> Iterator[CellResult]:
    """Yields the results of all sweeps, also of imported ones. Damaged journals end early; the board reports them."""
    for path in (*journals(paths.sweeps), *journals(paths.imports)):
        try:
            yield from results(path)
        except JournalDamaged:
            continue


def void(paths: Paths, target: VoidTarget, note: str, by: str) -> Void:
    """Marks a result or a kernel as not earned. An existing mark is replaced.

    Raises:
        UsageError: the note or the name is empty.
        FolderUnwritable: the mark could not be written.
    """
    line = _mark(target, note, by)
    if not line.note:
        raise UsageError("a void needs a note", "say why the result is not earned: --note TEXT")
    if not line.by:
        raise UsageError("a void needs the name of who says so", "name somebody: --by NAME")
    append_line(paths.voids, line)
    return line


def unvoid(paths: Paths, target: VoidTarget, note: str, by: str) -> Void:
    """Takes a mark back.

    Raises:
        UsageError: there is no such mark.
        FolderUnwritable: the line could not be written.
    """
    voids = read_voids(paths.voids)
    marks, name = (voids.runs, target.run) if target.run else (voids.kernels, target.code)
    if name not in marks:
        raise UsageError(f"{target.words} is not voided", _advice(paths, target))
    line = _mark(target, note, by, undo=True)
    append_line(paths.voids, line)
    return line


def _mark(target: VoidTarget, note: str, by: str, undo: bool = False) -> Void:
    return view(Void, target, at=time.time(), note=clean_note(note), by=clean_note(by), undo=undo)


def _advice(paths: Paths, target: VoidTarget) -> str:
    """Returns which mark to take back instead: that of the kernel, if the run is voided with its kernel."""
    for entry in voided(paths) if target.run else ():
        if entry.run_id == target.run:
            return f"its kernel is: `pkb-arena void {entry.code[:12]} --undo`"
    return "`pkb-arena void` lists what is"
