"""Writes and reads bundles.

results.jsonl (or .parquet)     one flat row per result: the columns of `ResultRow`
sweeps/NAME.jsonl               the journals themselves, without the paths of this machine
sweeps/NAME.voids               which of these results are voided, why and by whom
kernels/SHA256.py               every kernel of a result, once; a folder SHA256 for a kernel of several files
traces/ID.jsonl                 how models wrote the kernels
README.md                       the data card
manifest.json                   SHA-256 of all of these
"""

import errno
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from itertools import chain, count
from pathlib import Path
from typing import Any, BinaryIO, get_args

import msgspec

from arena.api import reward
from arena.errors import UsageError, require_extra, why
from arena.export.inspect_log import write_journal
from arena.machine.facts import installed_version, this_machine
from arena.models.budget import Spent
from arena.paths import NAMED, Paths, files_in, make_folder, writing
from arena.records.header import read_header
from arena.records.index import stored
from arena.records.run_record import RunRecord, view
from arena.records.voids import VOIDS_SUFFIX, Void, read_voids
from arena.sweep.journal import JournalDamaged, chosen_journals, read_lines, sweep_path
from arena.sweep.records import AnyLine, Cell, CellResult, SweepPlan, SweepSession, Unanswered, Written
from arena.words.headline import by_clock
from arena.words.untrusted_text import printable
from arena.workspace.kernel_folder import write_folder
from arena.workspace.kernels import Workspace
from problems.catalogue import Catalogue
from sandbox.machine.locked_folder import LockedFolder, open_plain, remove_leftovers
from sandbox.protocol.events import Setting
from sandbox.protocol.kernel_files import Kernel

MANIFEST = "manifest.json"
VERSION = 1
MOST_MANIFEST_BYTES = 64 << 20
MOST_BYTES = 64 << 30
"""Most bytes of a bundle that is read."""
_CHUNK = 1 << 20


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """manifest.json."""

    created: float
    """Seconds since the epoch."""
    arena: str
    """Version of pkb-arena."""
    results: int
    files: dict[str, str]
    """SHA-256 by path in the bundle."""
    version: int = VERSION


def write_manifest(folder: Path, created: float, arena: str, results: int) -> Manifest:
    """Writes the manifest of everything in a folder. Raises OSError."""
    files = {str(path.relative_to(folder)): sha256_of(path) for path in sorted(folder.rglob("*")) if path.is_file()}
    manifest = Manifest(created=created, arena=arena, results=results, files=files)
    (folder / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """Reads the manifest of a bundle.

    Raises:
        UsageError: there is none, it cannot be read, or a newer version made it.
    """
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}", "`pkb-arena export DIR` makes a bundle")
    try:
        with open_bounded(folder / MANIFEST, MOST_MANIFEST_BYTES) as file:
            manifest = msgspec.json.decode(file.read(MOST_MANIFEST_BYTES) or b"", type=Manifest)
    except (OSError, ValueError, RecursionError) as error:
        fault = "it has no manifest.json" if isinstance(error, FileNotFoundError) else "its manifest.json is damaged"
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            fault = why(error)
        raise UsageError(f"{folder} is no bundle: {fault}", "`pkb-arena export DIR` makes one") from None
    if manifest.version > VERSION:
        raise UsageError(f"{folder} was made by a newer pkb-arena ({printable(manifest.arena)})", "update this one")
    return manifest


def check_files(folder: Path, manifest: Manifest, copies: Mapping[str, Path]) -> None:
    """Reads every file of a bundle once, and copies some. What is compared with the manifest is what was copied.

    copies: new files by path in the bundle.

    Raises:
        UsageError: a file is missing, was changed, is too large or no plain file, or leads out of the folder.
        OSError: a copy cannot be written.
    """
    root, left = folder.resolve(), MOST_BYTES
    for name, digest in manifest.files.items():
        path = folder / name
        try:
            if not path.resolve().is_relative_to(root):
                raise FileNotFoundError
            file = open_bounded(path, left)
        except (ValueError, FileNotFoundError):  # a NUL in its name
            raise UsageError(f"{folder}: {printable(name)} is missing", "ask its maker for the whole bundle") from None
        except OSError as error:
            raise UsageError(f"{folder}: {printable(name)}: {why(error)}", "make it readable") from None
        with file, copies[name].open("xb") if name in copies else nullcontext() as copy:
            found, size = _read_through(file, copy, left)
        left -= size
        if found != digest:
            raise UsageError(
                f"{folder}: {printable(name)} is not what the manifest says", "ask its maker for the bundle again"
            )


def open_bounded(path: Path, most: int) -> BinaryIO:
    """Opens a plain file of at most `most` bytes for reading. Never blocks. Raises OSError."""
    file = os.fdopen(open_plain(path, os.O_NOFOLLOW), "rb")
    if os.fstat(file.fileno()).st_size > most:
        file.close()
        raise OSError(errno.EFBIG, f"larger than {most} bytes")
    return file


def _read_through(file: BinaryIO, copy: BinaryIO | None, most: int) -> tuple[str, int]:
    """Returns the SHA-256 and the size of what is read, at most `most` bytes, and writes it into the copy."""
    digest, size = hashlib.sha256(), 0
    while chunk := file.read(min(_CHUNK, most - size)):
        digest.update(chunk)
        size += len(chunk)
        if copy is not None:
            copy.write(chunk)
    if copy is not None:
        copy.flush()
        os.fsync(copy.fileno())
    return digest.hexdigest(), size


def sha256_of(path: Path) -> str:
    """Returns the SHA-256 of a file, as hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


FORMATS = ("jsonl", "parquet")
SWEEPS, KERNELS, TRACES = "sweeps", "kernels", "traces"
"""Folders of a bundle."""
_BLOCK = 16 << 20
"""Most bytes of a row that becomes Parquet."""
_FEATURES = {int: "int64", float: "float64", str: "string", bool: "bool"}
"""Types of columns as data sets name them. Inferred ones would differ where a column has only nulls."""
INCOMING = ".import-"
"""Prefix of the folder of an import that is not complete."""


class ResultRow(msgspec.Struct, frozen=True, kw_only=True):
    """One result as a flat row, for data frames."""

    sweep: str
    """Its name. Columns keep their names, because other programs read them."""
    at: float
    """Seconds since the epoch."""
    problem_id: int
    problem: str
    category: str
    problem_class: str
    player: str
    attempt: int
    preset: str
    device: str
    world: int
    dtype: str
    sizes: str
    """Sizes by name, as JSON."""
    catalogue: str
    machine: str
    """The machine in words."""
    sha256: str
    verdict: str
    detail: str
    outcome: str
    clock: str
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    """`speedup_low` and `speedup_high` are the ends of the 99 % interval."""
    baseline_us: float | None
    kernel_us: float | None
    roofline_percent: float | None
    paper_rule: str
    one_size_only: bool | None
    tokens_read: int
    tokens_written: int
    usd: float
    seconds: float
    reward: float
    """`arena.api.reward` with its defaults."""
    run_id: str
    trace_id: str
    voided: str = ""
    """Why the result counts in no score; empty: it counts."""


class ShownPlayers:
    """Names of players without the folders of this machine. A number distinguishes folders with the same name."""

    def __init__(self) -> None:
        self._shown: dict[str, str] = {}

    def of(self, player: str) -> str:
        """ "file:mine" for "file:/home/me/mine"; "file:mine-2" if that name is taken. Also for agent programs."""
        if player not in self._shown:
            short = _without_folder(player)
            names = chain([short], (f"{short}-{number}" for number in count(2)))
            self._shown[player] = next(name for name in names if name not in self._shown.values())
        return self._shown[player]


def _without_folder(player: str) -> str:
    kind, colon, name = player.partition(":")
    program, space, arguments = name.partition(" ") if kind == "agent" else (name, "", "")
    if not colon or kind not in ("file", "agent") or "/" not in program:
        return player
    return f"{kind}:{Path(program).name or program}{space}{arguments}"


def export_bundle(
    paths: Paths, catalogue: Catalogue, folder: Path, names: Sequence[str] = (), form: str = "jsonl"
) -> Manifest:
    """Writes these sweeps, or all sweeps, into a new folder. Without any sweep: all runs of players, without journals.

    Raises:
        UsageError: the folder is not empty, there is no such sweep, or nothing was ever run.
        MachineError: Parquet without pyarrow, a journal is damaged, or the folder cannot be written.
    """
    if form == "parquet":
        require_extra("parquet", "pyarrow", "Parquet needs pyarrow")
    chosen = chosen_journals(paths.sweeps, names)
    runs = [] if chosen else _single_runs(paths)
    if not chosen and not runs:
        raise UsageError("there is no result to export", "`pkb-arena run` or `pkb-arena sweep --players ...` makes one")
    newest = {path: _newest(path) for path in chosen}  # damage is found before anything is written
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty", "name a new folder")
    make_folder(folder, NAMED)
    with writing(folder, NAMED):
        (folder / SWEEPS).mkdir()
        (folder / KERNELS).mkdir()
        (folder / TRACES).mkdir()
        rows, players = 0, ShownPlayers()
        with (folder / "results.jsonl").open("wb") as out:
            for path in chosen:
                for row in _copy(paths, catalogue, path, folder, newest[path], players):
                    out.write(msgspec.json.encode(row) + b"\n")
                    rows += 1
            for run in runs:
                out.write(msgspec.json.encode(_row_of_run(paths, catalogue, run, folder, players)) + b"\n")
                rows += 1
        for trace in files_in(paths.traces) if runs else ():
            _keep_trace(paths, folder, trace.stem, players)
        if form == "parquet":
            _to_parquet(folder / "results.jsonl", folder / "results.parquet")
        version = installed_version("pkb-arena") or ""
        (folder / "README.md").write_text(_card(chosen, rows, form, version), encoding="utf-8")
        return write_manifest(folder, time.time(), version, rows)


def _single_runs(paths: Paths) -> list[RunRecord]:
    """Returns the runs of all players that are in no sweep's journal, oldest first."""
    found = stored(paths, lambda store: [run for player in store.players() for run in store.entries(player)])
    return sorted(found or [], key=lambda run: (run.created, run.run_id))


def _row_of_run(paths: Paths, catalogue: Catalogue, run: RunRecord, folder: Path, players: ShownPlayers) -> ResultRow:
    """Returns a single run as the result of a sweep without a name. Keeps its kernel."""
    setting = view(Setting, run, problem_dir="")
    problem = next((problem for problem in catalogue.problems if problem.slug == run.slug), None)
    line = view(
        CellResult, run,
        at=run.created,
        key=run.run_id,
        cell=Cell(slug=run.slug, setting=setting, player=run.player, attempt=1, catalogue=""),
        class_=problem.class_ if problem is not None else "",
        worker="",
        report=run,
        spent=Spent(),
        trace_id="",
        seconds=run.seconds.total,
    )  # fmt: skip
    with suppress(OSError, ValueError):
        _keep_kernel(folder, read_header(paths.runs / f"{run.run_id}.jsonl").kernel)
    void = run.voided if isinstance(run.voided, Void) else None
    here = this_machine(run.device)
    return row_of("", line, str(here) if run.machine in ("", here.digest) else "", players.of(run.player), void)


def _newest(path: Path) -> dict[str, float]:
    """Returns the time of the newest result of every key, in seconds since the epoch."""
    return {line.key: line.at for line in read_lines(path) if isinstance(line, CellResult)}


def _copy(
    paths: Paths, catalogue: Catalogue, path: Path, folder: Path, newest: Mapping[str, float], players: ShownPlayers
) -> Iterator[ResultRow]:
    """Copies a journal with its kernels and traces. Yields the newest result of every key, according to `newest`."""
    machines: dict[str, str] = {}
    voids, marks = read_voids(paths.voids), b""
    with (folder / SWEEPS / path.name).open("wb") as out:
        for line in read_lines(path):
            out.write(msgspec.json.encode(_without_paths(line, players)) + b"\n")
            match line:
                case SweepSession():
                    machines |= {machine.digest: str(machine) for machine in line.machines}
                case Written() if line.source:
                    _keep_kernel(folder, Kernel(line.source, line.files))
                case CellResult() if newest.get(line.key) == line.at:
                    _keep_kernel_of(paths, catalogue, folder, line)
                    _keep_trace(paths, folder, line.trace_id, players)
                    void = voids.of(line.run_id, line.code)
                    if void is not None:
                        marks += msgspec.json.encode(msgspec.structs.replace(void, run=line.run_id, code="")) + b"\n"
                    yield row_of(path.stem, line, machines.get(line.machine, ""), players.of(line.cell.player), void)
    if marks:
        (folder / SWEEPS / path.name).with_suffix(VOIDS_SUFFIX).write_bytes(marks)


def _without_paths(line: AnyLine, players: ShownPlayers) -> msgspec.Struct:
    """Returns the line without the folders of this machine."""
    if isinstance(line, SweepSession):
        plan: SweepPlan = msgspec.structs.replace(line.plan, players=list(map(players.of, line.plan.players)))
        return msgspec.structs.replace(line, plan=plan)
    if isinstance(line, Written | Unanswered | CellResult):
        cell = msgspec.structs.replace(line.cell, player=players.of(line.cell.player))
        line = msgspec.structs.replace(line, cell=cell)
    if isinstance(line, CellResult) and line.report is not None:
        return msgspec.structs.replace(line, report=msgspec.structs.replace(line.report, kernel="kernel.py"))
    return line


def _keep_kernel(folder: Path, kernel: Kernel) -> None:
    path = folder / KERNELS / (kernel.sha256 if kernel.files else f"{kernel.sha256}.py")
    if path.exists():
        return
    if kernel.files:
        write_folder(path, kernel, mode=0o644)
    else:
        path.write_text(kernel.source, encoding="utf-8")


def _keep_kernel_of(paths: Paths, catalogue: Catalogue, folder: Path, line: CellResult) -> None:
    if not line.sha256 or any((folder / KERNELS / name).exists() for name in (line.sha256, f"{line.sha256}.py")):
        return
    kernel = Workspace(paths.workspace).kernel(line.sha256)
    if kernel is None:
        kernel = Kernel(next((p.baseline_source for p in catalogue.problems if p.slug == line.cell.slug), ""))
    if kernel.sha256 == line.sha256:
        _keep_kernel(folder, kernel)


def _keep_trace(paths: Paths, folder: Path, trace_id: str, players: ShownPlayers) -> None:
    """Copies a trace, without this machine's folders in its header. A trace without a readable header is left out."""
    trace = paths.traces / f"{trace_id}.jsonl"
    if not trace_id or not trace.is_file():
        return
    with trace.open("rb") as lines, suppress(msgspec.ValidationError, msgspec.DecodeError):
        header = msgspec.json.decode(lines.readline(), type=dict[str, Any])
        if isinstance(setting := header.get("setting"), dict):
            setting["problem_dir"] = ""
        if isinstance(player := header.get("player"), str):
            header["player"] = players.of(player)
        with (folder / TRACES / trace.name).open("wb") as out:
            out.write(msgspec.json.encode(header) + b"\n")
            shutil.copyfileobj(lines, out)


def row_of(sweep: str, line: CellResult, machine: str, player: str, void: Void | None) -> ResultRow:
    """Returns a result as a flat row."""
    record, setting = line.record, line.cell.setting
    speed = record.interval
    return view(
        ResultRow, line, line.cell, setting, record, line.spent,
        sweep=sweep,
        problem=line.cell.slug,
        problem_class=line.class_,
        player=player,
        sizes=msgspec.json.encode(setting.sizes).decode(),
        machine=machine,
        speedup=record.median,
        speedup_low=speed.low if speed is not None else None,
        speedup_high=speed.high if speed is not None else None,
        baseline_us=by_clock(record.baseline_us, record.clock),
        kernel_us=record.time_us,
        roofline_percent=record.percent,
        paper_rule=record.paper_rule or "",
        one_size_only=record.one_size_only if record.tried_other_sizes else None,
        tokens_read=line.spent.read,
        tokens_written=line.spent.written,
        reward=reward(record) if void is None else 0.0,
        voided=void.note if void is not None else "",
    )  # fmt: skip


def import_bundle(paths: Paths, folder: Path) -> tuple[list[str], int]:
    """Copies and checks a bundle, and adds its sweeps to the board, marked as from elsewhere. Runs nothing in it.

    Voids are in place before the results that they void, and nothing is before all of it is checked.

    Returns:
        The names of these sweeps on the board, and the number of their results.

    Raises:
        UsageError: the bundle is incomplete, changed, unreadable, of a newer version or without a sweep.
        FolderUnwritable: the data folder cannot be written.
    """
    manifest = read_manifest(folder)
    if not _copies(paths, manifest, paths.imports):
        raise UsageError(f"{folder} has single runs only", "the board takes sweeps: export a sweep, and import that")
    return _import(paths, lambda incoming: check_files(folder, manifest, _copies(paths, manifest, incoming)))


def import_inspect_log(paths: Paths, catalogue: Catalogue, log: Path) -> tuple[list[str], int]:
    """Adds the results in a log of Inspect to the board, as `import_bundle` does. Returns and raises the same."""
    name = re.sub(r"[^\w.-]+", "-", log.stem)[:60].lstrip(".") or "inspect"

    def write(incoming: Path) -> None:
        write_journal(log, incoming / sweep_path(paths.imports, f"{name}-{sha256_of(log)[:8]}").name, catalogue)

    return _import(paths, write)


def _import(paths: Paths, write: Callable[[Path], object]) -> tuple[list[str], int]:
    """Has journals and voids written into a folder. They become imports when all of them are there and checked."""
    make_folder(paths.imports.parent)
    remove_leftovers(paths.imports.parent, INCOMING)
    with writing(paths.imports), LockedFolder(INCOMING, paths.imports.parent) as incoming:
        write(incoming.path)
        journals = sorted(incoming.path.glob("*.jsonl"))
        results = sum(map(_count_results, journals))
        make_folder(paths.imports)
        for path in (*incoming.path.glob(f"*{VOIDS_SUFFIX}"), *journals):
            os.replace(path, paths.imports / path.name)
    return [path.stem for path in journals], results


def _copies(paths: Paths, manifest: Manifest, incoming: Path) -> dict[str, Path]:
    """Returns where the files of the board are copied to, by path in the bundle."""
    copies = {}
    for name, digest in manifest.files.items():
        if name.startswith(f"{SWEEPS}/") and name.endswith(".jsonl"):
            copy = incoming / sweep_path(paths.imports, f"{Path(name).stem}-{digest[:8]}").name
            copies[name] = copy
            marks = name.removesuffix(".jsonl") + VOIDS_SUFFIX
            if marks in manifest.files:
                copies[marks] = copy.with_suffix(VOIDS_SUFFIX)
    return copies


def _count_results(journal: Path) -> int:
    """Checks the copy of a journal and of its voids. Returns the number of results."""
    advice = "ask its maker for another bundle"
    try:
        count = len({line.key for line in read_lines(journal) if isinstance(line, CellResult)})
    except JournalDamaged as error:
        raise UsageError(error.message, advice) from None
    if damaged := read_voids(journal.with_suffix(VOIDS_SUFFIX)).damaged:
        raise UsageError(damaged, advice)
    return count


def _to_parquet(source: Path, target: Path) -> None:
    """Rewrites rows as Parquet, and removes the JSON file."""
    import pyarrow
    from pyarrow import json, parquet

    types = {int: pyarrow.int64(), float: pyarrow.float64(), str: pyarrow.string(), bool: pyarrow.bool_()}
    schema = pyarrow.schema([(field.name, types[_plain(field.type)]) for field in msgspec.structs.fields(ResultRow)])
    table = schema.empty_table()
    if source.stat().st_size:
        options = json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
        table = json.read_json(source, json.ReadOptions(block_size=_BLOCK), options)
    parquet.write_table(table, target, compression="zstd")
    source.unlink()


def _plain(annotation: object) -> type:
    """Returns the type without None: float for `float | None`."""
    return next(kind for kind in (bool, int, float, str) if kind is annotation or kind in get_args(annotation))


def _card(chosen: Sequence[Path], count: int, form: str, version: str) -> str:
    fields = msgspec.structs.fields(ResultRow)
    words = (_plain(field.type).__name__ + " or null" * ("None" in str(field.type)) for field in fields)
    columns = "\n".join(f"| `{field.name}` | {word} |" for field, word in zip(fields, words, strict=True))
    features = "\n".join(f"  - name: {field.name}\n    dtype: {_FEATURES[_plain(field.type)]}" for field in fields)
    names = f"the sweeps {', '.join(path.stem for path in chosen)}" if chosen else "single runs"
    text = Path(__file__).with_name("card.md").read_text(encoding="utf-8")
    return text.format(count=count, names=names, version=version, form=form, columns=columns, features=features)
