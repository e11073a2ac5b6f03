"""Finding and opening the journal of a campaign: a new one, or the one that is to go on."""

import os
import secrets
import time
from collections.abc import Sequence

from arena.errors import PathRefused, UsageError
from arena.machine.facts import installed_version
from arena.paths import Paths
from arena.sweep.journal import CampaignJournal, campaign_path, journals, last_plan
from arena.sweep.plan import CampaignPlan
from arena.sweep.records import CampaignSession
from arena.sweep.workers import Seat, machines


def new_name() -> str:
    """Sorts by time, like a run's id."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def plan_to_go_on(paths: Paths, name: str) -> tuple[str, CampaignPlan]:
    """The name and the plan of a campaign that is to go on as it was; the newest one where no name is given.

    Raises:
        UsageError: there is none.
        PathRefused: the one of this name cannot be read.
    """
    path = campaign_path(paths.campaigns, name) if name else None
    found = (
        [path] if path is not None and path.exists() else journals(paths.campaigns) if path is None else []
    )
    if found and name and not os.access(found[0], os.R_OK):
        raise PathRefused(f"cannot read {found[0]}: Permission denied", "make it readable")
    for candidate in reversed(found):
        if (session := last_plan(candidate)) is not None:
            return candidate.stem, session.plan
    if found and name:
        raise UsageError(
            f"{found[0]} is no campaign's journal, or no session of it began", "choose another --name"
        )
    raise UsageError(
        f"there is no campaign {name!r}" if name else "there is no campaign to go on with",
        "`pkb-arena sweep --players baseline,house --problems all` begins one",
    )


def same_plan(paths: Paths, plan: CampaignPlan) -> str:
    """The newest campaign with this very plan; empty where there is none."""
    for path in reversed(journals(paths.campaigns)):
        session = last_plan(path)
        if session is not None and session.plan == plan:
            return path.stem
    return ""


def open_journal(paths: Paths, name: str, resume: bool) -> CampaignJournal:
    """The journal of this name, open for writing.

    Raises:
        UsageError: there is one already and it is not to be resumed.
        MachineError: another process has it, it cannot be written, or it is no campaign's journal.
    """
    path = campaign_path(paths.campaigns, name)
    if path.exists() and not resume:
        raise UsageError(
            f"there is a campaign {name} already", "go on with it by --resume, or choose another --name"
        )
    return CampaignJournal(path, name)


def begin_session(journal: CampaignJournal, plan: CampaignPlan, seats: Sequence[Seat]) -> None:
    """Writes down who is at work from now on, and at what.

    Raises:
        JournalFull: it could not be written.
    """
    version = installed_version("pkb-arena") or ""
    journal.append(CampaignSession(at=time.time(), plan=plan, machines=machines(seats), arena=version))
