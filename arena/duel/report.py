"""The JSON object of `duel --json`. Fields are added, never renamed."""

import msgspec

from arena.duel.events import DuelPlayer, Finalist, Winner
from arena.duel.state import DuelState, SideState
from arena.records.run_record import BriefResult, view
from sandbox.protocol.events import Interval


class DuelAttemptReport(BriefResult, frozen=True, kw_only=True):
    """One kernel of a side, in a run of its own against the baseline."""

    attempt: int
    at: float
    """Time of the verdict, in seconds since the duel began."""
    sha256: str
    speedup: Interval | None


class SideReport(Finalist, frozen=True, kw_only=True):
    """One side. `verdict`, `detail` and `us` are from the final if there was one."""

    player: str
    kind: str
    kernel: str
    attempts: list[DuelAttemptReport]
    left: str
    tokens: int


class DuelReport(msgspec.Struct, frozen=True, kw_only=True):
    """Units: seconds, and microseconds in `us`."""

    duel_id: str
    problem: str
    id: int
    category: str
    device: str
    world: int
    dtype: str
    preset: str
    sizes: dict[str, int]
    winner: Winner
    reason: str
    speedup: Interval | None
    """Speedup of left over right in the final; null without a final."""
    rounds: int
    left: SideReport
    right: SideReport
    seconds: float
    clock: str = ""
    """The clock that decided the final: "call", or "device" if end-to-end time was too noisy."""
    budget_usd: float | None = None
    """Limit of dollars for each side; null without a limit."""
    rated: bool = True
    """False if a provider or program failed before its side submitted a kernel."""


def duel_report(state: DuelState) -> DuelReport:
    """Builds the report of a decided duel."""
    header, ended = state.header, state.ended
    assert ended is not None
    return view(
        DuelReport, ended, header, header.setting,
        problem=header.slug,
        id=header.problem_id,
        left=_side(header.left, state.left, ended.left),
        right=_side(header.right, state.right, ended.right),
        seconds=ended.at,
        rated=not ended.never_played,
    )  # fmt: skip


def _side(player: DuelPlayer, side: SideState, finalist: Finalist) -> SideReport:
    attempts = [
        view(DuelAttemptReport, attempt.judged, attempt, attempt=attempt.number)
        for attempt in side.attempts
        if attempt.judged is not None
    ]
    kernel = player.kernel_path or player.name
    return view(SideReport, finalist, player, side, usd=side.usd, player=player.name, kernel=kernel, attempts=attempts)
