"""What runs and waits on this machine: the queue of its devices, and the sweeps with their progress."""

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from arena.errors import UsageError, why
from arena.paths import Paths, make_folder, module_command, unwritable, user
from arena.records.header import read_header
from arena.records.json_lines import Follower
from arena.sweep.grid import SweepGrid
from arena.sweep.journal import JournalDamaged, journals, new_lines, new_name, sweep_path
from arena.workspace.named_kernels import BASELINE
from sandbox.referee.lease import Applicant, Urgency, lock_holders

NEWEST = 8
"""Number of sweeps that are shown."""
STARTED_S = 30.0
"""Seconds within which a sweep writes to its journal, or ends because its options are wrong."""
_TURNS = {Urgency.SWEEP: "after people", Urgency.BACKGROUND: "when idle"}


class Work(NamedTuple):
    """A process that holds or waits for devices, or a sweep."""

    who: str
    what: str
    since: float
    """When it asked for its devices, or when the sweep's last line was written, in seconds since the epoch."""
    place: str
    """ "running", "2", "2 after people"; for a sweep "running" or "stopped", and "done"."""
    expected_s: float | None = None
    """Seconds until its end if it is running, else until its turn; None: not known."""
    money: str = ""
    """ "$1.92 of $5.00" of a sweep that pays for answers."""
    sweep: str = ""
    """Name of a sweep; empty: a run or a profile."""
    pid: int = 0
    """The process; 0: none."""


def runs_under_way(held: Sequence[Applicant]) -> list[Work]:
    """Returns the runs and profiles of a machine's queue, by turn.

    Each is expected to wait for all before it as long as they usually hold their devices, at most.
    """
    found, waiting = [], 0
    ahead_s: float | None = 0.0
    for each in held:
        holder, note = each.holder, each.note
        waiting += not note.holds
        place = "running" if note.holds else f"{waiting} {_TURNS.get(Urgency(note.urgency), '')}".strip()
        with_it_s = ahead_s + note.expected_s if ahead_s is not None and note.expected_s else None
        until_s = with_it_s if note.holds else ahead_s
        found.append(Work(holder.user, holder.problem or "measures", note.since, place, until_s, pid=each.pid))
        ahead_s = with_it_s
    return found


class Sweeps:
    """The newest sweeps. Only lines that were added to a journal are read. Methods block for milliseconds and more."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._read: dict[Path, tuple[int, Follower, SweepGrid]] = {}
        """Size of each journal, and what was read of it."""

    def rows(self) -> list[Work]:
        """Returns a row for each sweep, the newest first. A damaged journal has none."""
        return [*filter(None, map(self._row, reversed(journals(self._paths.sweeps)[-NEWEST:])))]

    def _row(self, path: Path) -> Work | None:
        try:
            size, inode, at = (found := path.stat()).st_size, found.st_ino, found.st_mtime
            known, follower, grid = self._read.pop(path, (0, Follower(path), SweepGrid()))
            if size < known:  # a session that wrote nothing took its line back
                follower, grid = Follower(path), SweepGrid()
            while lines := new_lines(follower):
                for line in lines:
                    grid.apply(line)
        except (OSError, JournalDamaged):
            return None
        self._read[path] = size, follower, grid
        pid = next(iter(lock_holders([inode])), 0)
        if grid.plan is None:  # it measures the machine first
            return Work(user(), f"sweep {path.stem}", at, "starting", None, "", path.stem, pid) if pid else None
        whole = grid.results >= grid.total
        cells = [" ".join(map(str, cell)) for cell in running_cells(self._paths.runs, path) if pid]
        limit = f" of ${grid.plan.budget_usd:.2f}" if grid.plan.budget_usd is not None else ""
        return Work(
            user(),
            " · ".join([f"{grid.results} of {grid.total}", *cells, f"sweep {path.stem}"]),  # a long name is cut
            grid.last_at,
            "running" if pid else "done" if whole else "stopped",
            grid.left_s if pid and not whole else None,
            f"${grid.usd:.2f}{limit}" if grid.usd or limit else "",
            path.stem,
            pid,
        )


def running_cells(runs: Path, journal: Path) -> list[tuple[int, str, str]]:
    """Returns id and slug of the problem, and player, of each run of a sweep; none of another user's process."""
    with suppress(OSError, ValueError):  # the first line of a run is not written yet: the next look reads again
        of = journal.stat()
        pid = next(iter(lock_holders([of.st_ino])), 0)
        return _open_runs(runs, pid, of.st_mtime_ns, runs.stat().st_mtime_ns)
    return []


@lru_cache(2 * NEWEST)  # reads them again only after a change of the process, of its journal or of the folder of runs
def _open_runs(runs: Path, pid: int, *changes: int) -> list[tuple[int, str, str]]:
    cells = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # it was closed since
            if (written := Path(os.readlink(link))).parent == runs.resolve():
                run = read_header(written)
                cells.append((run.problem_id, run.slug, BASELINE if run.player == "you" else run.player))
    return cells


def start_sweep(paths: Paths, options: str) -> str:
    """Starts a sweep in a process of its own, which goes on when this one ends. Blocks for up to STARTED_S.

    options: as for `pkb-arena sweep`. Its messages go into NAME.log beside its journal.

    Returns:
        The sweep's name: that of `--name`, else a new one.

    Raises:
        UsageError: the options are wrong; the message is that of the command.
    """
    try:
        words = shlex.split(options)
    except ValueError as error:
        raise UsageError(f"options: {error}", "write them as for `pkb-arena sweep`") from None
    if not words:
        raise UsageError("no options: every baseline would run", "name players or problems, or write `--problems all`")
    named = [word.removeprefix("--name=") for word in words if word.startswith("--name=")]
    named += [later for word, later in zip(words, [*words[1:], ""], strict=True) if word == "--name"]
    name = named[-1] if named else new_name()
    log = make_folder(paths.sweeps) / f"{Path(name).name}.log"
    journal = log.with_suffix(".jsonl")
    size, until = journal.exists() and journal.stat().st_size, time.monotonic() + STARTED_S
    with log.open("wb") as file:
        command = [*module_command("screens.main"), "sweep", *words, *([] if named else ["--name", name])]
        sweep = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True)
    while time.monotonic() < until and sweep.poll() is None:
        if journal.exists() and journal.stat().st_size != size:
            return name
        time.sleep(0.05)
    if sweep.returncode:
        said = log.read_text(encoding="utf-8", errors="replace").strip().replace("\n  ", " → ").splitlines()
        raise UsageError(said[-1] if said else "the sweep ended at once", f"its output is in {log}")
    return name


def rename_sweep(paths: Paths, work: Work, name: str) -> None:
    """Renames a sweep and its messages.

    Raises:
        UsageError: it is running, or the name is taken or is no sweep's name.
        FolderUnwritable: it could not be renamed.
    """
    new = sweep_path(paths.sweeps, name)
    journal = new.with_name(f"{work.sweep}.jsonl")
    try:
        if lock_holders([journal.stat().st_ino]):  # not work.pid: it may have ended or started since
            raise UsageError(f"the sweep {work.sweep} is running", "stop it first")
        if new.exists():
            raise UsageError(f"there is a sweep {name} already", "choose another name")
        with suppress(FileNotFoundError):
            journal.with_suffix(".log").rename(new.with_suffix(".log"))
        journal.rename(new)
    except OSError as error:
        raise unwritable(paths.sweeps, error) from None


def stop_sweep(work: Work) -> None:
    """Stops a sweep as ctrl+c does: its results are kept, and it can be resumed.

    Raises:
        UsageError: it is not running, or belongs to another user.
    """
    try:
        if not work.pid:
            raise ProcessLookupError("it is not running")
        os.kill(work.pid, signal.SIGINT)
    except OSError as error:
        raise UsageError(f"the sweep {work.sweep} was not stopped: {why(error)}", "stop it where it runs") from None
