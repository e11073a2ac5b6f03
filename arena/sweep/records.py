"""The lines of a campaign's journal. Fields are added, never renamed."""

import hashlib

import msgspec

from arena.machine.fingerprint import Machine
from arena.models.budget import Spent
from arena.runs.results import RunReport
from arena.sweep.plan import CampaignPlan
from sandbox.protocol.events import Setting
from sandbox.protocol.verdict import Verdict

VERSION = 1
NO_KERNEL = "NO_KERNEL"
"""In the place of a verdict: the player's answer held no kernel."""
REFUSED = "REFUSED"
"""In the place of a verdict: the setting cannot be run."""
TEXT_CHARACTERS = 2000
"""Of a traceback or compiler output that a result keeps; the run's own journal has all of it."""


class CampaignLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of all lines. `at`: seconds since the epoch."""

    at: float = 0.0


class CampaignOpened(CampaignLine, tag="campaign", frozen=True, kw_only=True):
    """First line."""

    name: str
    version: int = VERSION


class CampaignSession(CampaignLine, tag="session", frozen=True, kw_only=True):
    """Somebody starts, or goes on with, the campaign."""

    plan: CampaignPlan
    machines: list[Machine]
    """Of the seats, without repetition."""
    arena: str
    """Version of pkb-arena."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One place in the table of a campaign."""

    slug: str
    setting: Setting
    """Without `problem_dir`, which is a path of one machine."""
    player: str
    attempt: int
    catalogue: str
    """Version of the problem: a digest of its files."""

    @property
    def digest(self) -> str:
        """Sixteen characters that name the cell."""
        return _digest(msgspec.json.encode(self, order="sorted"))

    def key(self, sha256: str, machine: str) -> str:
        """The name of a result: this cell, the kernel's hash ("" without one) and the machine's fingerprint."""
        return _digest(f"{self.digest} {sha256} {machine}".encode())


class Written(CampaignLine, tag="written", frozen=True, kw_only=True):
    """A player has answered, and was paid: it is not asked again for this cell."""

    cell: Cell
    source: str | None
    file_name: str
    complaint: str
    spent: Spent
    trace_id: str


class Unanswered(CampaignLine, tag="unanswered", frozen=True, kw_only=True):
    """A player was asked, and paid, and gave no answer: the provider failed, or the budget ended in its middle."""

    cell: Cell
    why: str
    spent: Spent


class CellResult(CampaignLine, tag="result", frozen=True, kw_only=True):
    """A cell is judged. A later line with the same key replaces this one."""

    key: str
    cell: Cell
    problem_id: int
    category: str
    class_: str
    sha256: str
    """Of the kernel; empty where there is none."""
    machine: str
    """Fingerprint of the seat's machine; the session has it in words."""
    seat: str
    verdict: str
    """A `Verdict`, NO_KERNEL or REFUSED."""
    detail: str
    report: RunReport | None
    """As `run --json`, its texts cut short; None without a run."""
    spent: Spent
    trace_id: str
    seconds: float
    """At the seat, tries that failed and other sizes included."""
    tries: int = 1

    @property
    def final(self) -> bool:
        """It says something of the kernel. What the harness failed at is tried again when the campaign goes on."""
        return self.verdict != Verdict.HARNESS_ERROR

    @property
    def passed(self) -> bool:
        """The kernel is right."""
        return self.verdict == Verdict.PASS


AnyLine = CampaignOpened | CampaignSession | Written | Unanswered | CellResult

decode_line = msgspec.json.Decoder(AnyLine).decode


def cut_short(report: RunReport) -> RunReport:
    """A report with the end of its long text."""
    failure = report.failure
    if failure is None or len(failure.text) <= TEXT_CHARACTERS:
        return report
    short = msgspec.structs.replace(failure, text=failure.text[-TEXT_CHARACTERS:])
    return msgspec.structs.replace(report, failure=short)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
