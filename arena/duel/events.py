"""The events of a duel. The screen, the journal on disk and the replay use the same ones."""

from collections.abc import Callable
from typing import Literal

import msgspec

from arena.records.json_lines import decoder
from sandbox.protocol.events import Interval, Setting
from sandbox.protocol.kernel_files import Files, Kernel
from sandbox.protocol.verdict import Verdict

VERSION = 1

SideName = Literal["left", "right"]
SIDES: tuple[SideName, SideName] = ("left", "right")
Kind = Literal["file", "house", "baseline", "model"]
Winner = Literal["left", "right", "draw"]


def other(side: SideName) -> SideName:
    """The opponent's side."""
    return "right" if side == "left" else "left"


MOST_NAME = 28
"""Maximum characters of a player's name in a line with another name."""


def short_name(player: str, most: int = MOST_NAME) -> str:
    """Shortens a player's name to its kind and its end if it is too long: "agent:…/mine/agent.py"."""
    if len(player) <= most:
        return player
    kind = player[: player.find(":") + 1][: most // 2]
    end = player[-(most - len(kind) - 1) :]
    return f"{kind}…{end[max(end.find('/'), 0) :]}"


class DuelPlayer(msgspec.Struct, rename={"name": "player"}, frozen=True):
    """The player of a side."""

    kind: Kind
    """"baseline" includes the baseline variants."""
    name: str
    """As in the index of results: `you`, `house`, `baseline`, `baseline-graph`, `model:NAME`."""
    kernel_path: str = ""
    """The player's kernel file or folder; empty if it has none."""

    @property
    def short(self) -> str:
        """The player's name for display: see `short_name`."""
        return short_name(self.name)


class DuelHeader(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="duel"):
    """First line of a duel's journal: the players, the problem and the rules."""

    duel_id: str
    created: float
    """Seconds since the epoch."""
    problem_id: int
    slug: str
    title: str
    category: str
    left: DuelPlayer
    right: DuelPlayer
    setting: Setting
    preset_sizes: bool = True
    minutes: float | None = None
    """Minutes of the clock; None: no clock, each side plays until it is done."""
    rounds: int = 1
    """Kernels that a side may have judged."""
    budget_usd: float | None = None
    """Dollars that each side may spend on a provider; None: no limit."""
    version: int = VERSION

    def player(self, side: SideName) -> DuelPlayer:
        return self.left if side == "left" else self.right


class DuelEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of all events. `at`: seconds since the duel began, pauses included."""

    at: float = 0.0


class SideEvent(DuelEvent, frozen=True, kw_only=True):
    """Base of the events of one side."""

    side: SideName


class SideWrote(SideEvent, tag="wrote", frozen=True, kw_only=True):
    """More of the text that a side writes. A new attempt starts with an empty text."""

    attempt: int
    text: str


class Spending(SideEvent, tag="spending", frozen=True, kw_only=True):
    """Tokens and dollars that a model has used so far."""

    tokens: int
    usd: float
    estimated: bool = False


class Said(SideEvent, tag="said", frozen=True, kw_only=True):
    """A note about a side, such as a repeated request. It only replaces the side's last note in the state."""

    text: str


class Submitted(SideEvent, tag="submitted", frozen=True, kw_only=True):
    """A kernel was submitted. attempt: 1, 2, 3..."""

    attempt: int
    sha256: str
    source: str
    files: Files = {}

    @property
    def kernel(self) -> Kernel:
        return Kernel(self.source, self.files)


WAITING = "waiting"
"""Begins the words used instead of a phase while another run on this machine is timing; they say whose."""
MEASURING_ON = "measuring on"
"""Used instead of a phase while a run with a verdict goes on measuring."""


class KernelJudging(SideEvent, tag="judging", frozen=True, kw_only=True):
    """The kernel's run reached a phase."""

    attempt: int
    phase: str
    """One of the protocol's PHASES, or begins with WAITING. After the verdict: MEASURING_ON, then empty when that has ended."""


class Measured(SideEvent, tag="measured", frozen=True, kw_only=True):
    """The kernel's speedup over the baseline so far. After the verdict: that of a longer measurement."""

    attempt: int
    round: int
    rounds: int
    speedup: Interval
    clock: str = ""
    """The clock of the speedup: "call" or "device"."""
    outcome: str = ""
    """Set after the verdict."""


class KernelJudged(SideEvent, tag="judged", frozen=True, kw_only=True):
    """The kernel has its verdict. Its run has its own journal."""

    attempt: int
    run_id: str
    verdict: Verdict
    outcome: str
    speedup: Interval | None
    detail: str
    clock: str = ""
    """The clock of the outcome and the speedup."""
    rounds: int = 0
    """Number of timed rounds."""


ORDINARY = ("done", "agreed", "gave up", "time")
"""End reasons of a side that are not faults."""


FAILED = "failed: "
"""Start of the end reason of a side whose provider or program failed."""


class Left(SideEvent, tag="left", frozen=True, kw_only=True):
    """A side stops. Its best kernel goes into the final unless it gave up."""

    reason: str
    """One of ORDINARY, "the budget of $2 is spent", "limit of memory: ..." of an agent program's jail, or "failed: ..."."""


class Paused(DuelEvent, tag="paused", frozen=True, kw_only=True):
    """The clock stops, and nothing is judged."""


class Resumed(DuelEvent, tag="resumed", frozen=True, kw_only=True):
    """The clock runs again."""


class FinalBegan(DuelEvent, tag="final_began", frozen=True, kw_only=True):
    """The best kernels of both sides run against each other on fresh inputs."""

    left: int
    """Number of the side's attempt in the final."""
    right: int
    run_id: str


class FinalMeasured(DuelEvent, tag="final_measured", frozen=True, kw_only=True):
    """Speedup of the left kernel over the right one, so far."""

    round: int
    rounds: int
    speedup: Interval
    clock: str = ""


class Finalist(msgspec.Struct, frozen=True):
    """The result of one side."""

    attempt: int | None
    """Number of its best attempt; None: it had no kernel that passed, or gave up."""
    sha256: str | None
    verdict: Verdict | None
    """Verdict in the final; without a final, of its best kernel or else its last attempt. None: nothing was judged."""
    detail: str
    us: float | None
    """Median time per call in the final, in microseconds."""
    speedup: Interval | None
    """Speedup over the baseline, measured when the kernel was judged during the duel."""
    clock: str = ""
    """The clock of that speedup."""
    stopped: str = ""
    """Why it stopped, such as "the budget of $2 is spent"; empty for the ORDINARY reasons."""
    usd: float = 0.0
    """Dollars that it spent."""
    estimated: bool = False
    """Whether a part of them was estimated from text lengths."""

    @property
    def never_played(self) -> bool:
        """Whether its provider or program failed before a kernel of it was judged."""
        return self.verdict is None and self.stopped.startswith(FAILED)


class DuelEnded(DuelEvent, tag="ended", frozen=True, kw_only=True):
    """Last event of a duel that was decided."""

    winner: Winner
    reason: str
    left: Finalist
    right: Finalist
    speedup: Interval | None = None
    """Speedup of left over right in the final; above 1 when left is faster. None without a final."""
    rounds: int = 0
    clock: str = ""
    """The clock that decided the final: "call", or "device" if end-to-end time was too noisy."""

    def side(self, name: SideName) -> Finalist:
        """The result of one side."""
        return self.left if name == "left" else self.right

    @property
    def never_played(self) -> list[SideName]:
        """The sides whose provider or program failed before a kernel of them was judged. Such a duel is not rated."""
        return [name for name in SIDES if self.side(name).never_played]


class Abandoned(DuelEvent, tag="abandoned", frozen=True, kw_only=True):
    """Last event of a duel without an outcome: it was cancelled, or the harness failed. It counts for neither player."""

    reason: str


AnyDuelEvent = (
    SideWrote
    | Spending
    | Said
    | Submitted
    | KernelJudging
    | Measured
    | KernelJudged
    | Left
    | Paused
    | Resumed
    | FinalBegan
    | FinalMeasured
    | DuelEnded
    | Abandoned
)

decode_header: Callable[[bytes], DuelHeader] = decoder(DuelHeader)
decode_duel_event: Callable[[bytes], AnyDuelEvent] = decoder(AnyDuelEvent)
