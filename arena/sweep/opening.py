"""Finds and opens the journal of a new sweep, or of one to resume."""

import os
import secrets
import time
from collections.abc import Sequence

from arena.errors import PathRefused, UsageError
from arena.machine.facts import installed_version
from arena.paths import Paths
from arena.sweep.journal import SweepJournal, journals, last_plan, sweep_path
from arena.sweep.plan import SweepPlan
from arena.sweep.records import SweepSession
from arena.sweep.workers import Worker


def new_name() -> str:
    """Sorts by time, like a run's id."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def plan_to_go_on(paths: Paths, name: str) -> tuple[str, SweepPlan]:
    """The name and plan of the sweep to resume; the newest one if no name is given.

    Raises:
        UsageError: there is none.
        PathRefused: the one of this name cannot be read.
    """
    path = sweep_path(paths.sweeps, name) if name else None
    found = [path] if path is not None and path.exists() else journals(paths.sweeps) if path is None else []
    if found and name and not os.access(found[0], os.R_OK):
        raise PathRefused(f"cannot read {found[0]}: Permission denied", "make it readable")
    for candidate in reversed(found):
        if (session := last_plan(candidate)) is not None:
            return candidate.stem, session.plan
    if found and name:
        raise UsageError(
            f"{found[0]} is no sweep's journal, or no session of it began", "choose another --name"
        )
    raise UsageError(
        f"there is no sweep {name!r}" if name else "there is no sweep to resume",
        "`pkb-arena sweep --players baseline,house --problems all` begins one",
    )


def same_plan(paths: Paths, plan: SweepPlan) -> str:
    """The newest sweep with this very plan; empty where there is none."""
    for path in reversed(journals(paths.sweeps)):
        session = last_plan(path)
        if session is not None and session.plan == plan:
            return path.stem
    return ""


def open_journal(paths: Paths, name: str, resume: bool) -> SweepJournal:
    """The journal of this name, open for writing.

    Raises:
        UsageError: there is one already and it is not to be resumed.
        MachineError: another process has it, it cannot be written, or it is no sweep's journal.
    """
    path = sweep_path(paths.sweeps, name)
    if path.exists() and not resume:
        raise UsageError(
            f"there is a sweep {name} already", "continue it with --resume, or choose another --name"
        )
    return SweepJournal(path, name)


def begin_session(journal: SweepJournal, plan: SweepPlan, workers: Sequence[Worker]) -> None:
    """Writes the line of a new session: its plan and its machines.

    Raises:
        JournalFull: it could not be written.
    """
    machines = list(dict.fromkeys(worker.machine for worker in workers))
    version = installed_version("pkb-arena") or ""
    journal.append(SweepSession(at=time.time(), plan=plan, machines=machines, arena=version))
