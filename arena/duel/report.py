"""The JSON object of `duel --json`. Fields are added, never renamed."""

import msgspec

from arena.duel.events import DuelPlayer, Finalist, Winner
from arena.duel.state import DuelState, SideState
from sandbox.protocol.events import Interval
from sandbox.protocol.verdict import Verdict


class DuelAttemptReport(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel of a side, in a run of its own against the baseline."""

    attempt: int
    at: float
    """Time of the verdict, in seconds since the duel began."""
    run_id: str
    sha256: str
    verdict: Verdict
    outcome: str
    speedup: Interval | None
    detail: str
    clock: str = ""
    """The clock of the outcome and the speedup: "call" or "device"."""


class SideReport(msgspec.Struct, frozen=True, kw_only=True):
    """One side. `verdict`, `detail` and `us` are from the final if there was one."""

    player: str
    kind: str
    kernel: str
    attempts: list[DuelAttemptReport]
    left: str
    attempt: int | None
    sha256: str | None
    verdict: Verdict | None
    detail: str
    us: float | None
    speedup: Interval | None
    """Speedup over the baseline."""
    tokens: int
    usd: float
    clock: str = ""
    """The clock of the speedup over the baseline."""


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
    setting = header.setting
    return DuelReport(
        duel_id=header.duel_id,
        problem=header.slug,
        id=header.problem_id,
        category=header.category,
        device=setting.device,
        world=setting.world,
        dtype=setting.dtype,
        preset=setting.preset,
        sizes=setting.sizes,
        winner=ended.winner,
        reason=ended.reason,
        speedup=ended.speedup,
        rounds=ended.rounds,
        left=_side(header.left, state.left, ended.left),
        right=_side(header.right, state.right, ended.right),
        seconds=ended.at,
        clock=ended.clock,
        budget_usd=header.budget_usd,
        rated=not ended.never_played,
    )


def _side(player: DuelPlayer, side: SideState, finalist: Finalist) -> SideReport:
    return SideReport(
        player=player.name,
        kind=player.kind,
        kernel=player.kernel_path or player.name,
        attempts=[
            DuelAttemptReport(
                attempt=attempt.number,
                at=attempt.judged.at,
                run_id=attempt.judged.run_id,
                sha256=attempt.sha256,
                verdict=attempt.judged.verdict,
                outcome=attempt.judged.outcome,
                speedup=attempt.judged.speedup,
                detail=attempt.judged.detail,
                clock=attempt.judged.clock,
            )
            for attempt in side.attempts
            if attempt.judged is not None
        ],
        left=side.left,
        attempt=finalist.attempt,
        sha256=finalist.sha256,
        verdict=finalist.verdict,
        detail=finalist.detail,
        us=finalist.us,
        speedup=finalist.speedup,
        tokens=side.tokens,
        usd=side.usd,
        clock=finalist.clock,
    )
