"""The state of a duel, folded from its events. Screens, the command line and replays use it."""

from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec

from arena.duel import events
from arena.records.code_hash import code_hash
from arena.records.ranking import Measurement, Ranked, ranked
from arena.records.run_record import fields_of, view
from arena.words.headline import by_clock, headline_of
from sandbox.protocol.events import Interval, Result
from sandbox.protocol.kernel_files import Kernel
from sandbox.protocol.verdict import Verdict
from sandbox.timing.conclusion import clause
from sandbox.timing.interval import outcome

Stage = Literal["playing", "paused", "final", "ended", "abandoned"]


@dataclass
class AttemptState:
    """One kernel of a side."""

    number: int
    sha256: str
    kernel: Kernel
    phase: str = ""
    """Phase of its run, or why it has none; empty before and after it."""
    since: float = 0.0
    """When it was submitted, or its phase began."""
    samples: list[events.Measured] = field(default_factory=list)
    judged: events.KernelJudged | None = None

    @property
    def passed(self) -> bool:
        """Whether the kernel is right."""
        return self.judged is not None and self.judged.verdict is Verdict.PASS

    @property
    def speedup(self) -> Interval | None:
        """Speedup over the baseline: of the whole run if there is a verdict, else so far. None if nothing was timed."""
        return self.judged.speedup if self.judged else self.samples[-1].speedup if self.samples else None

    @property
    def clock(self) -> str:
        """The clock of the speedup: "call" or "device"; empty if nothing was timed."""
        return self.judged.clock if self.judged else self.samples[-1].clock if self.samples else ""


@dataclass
class SideState:
    """The state of one side."""

    attempts: list[AttemptState] = field(default_factory=list)
    writing: int = 0
    """Number of the attempt being written; 0 if no text of it has arrived."""
    text: str = ""
    """Its text so far."""
    said: str = ""
    tokens: int = 0
    usd: float = 0.0
    estimated: bool = False
    left: str = ""
    """The side's end reason; empty while it plays."""

    @property
    def stopped(self) -> str:
        """The end reason, if it is not one of the ORDINARY reasons; else empty."""
        return "" if self.left in events.ORDINARY else self.left

    @property
    def best(self) -> AttemptState | None:
        """The fastest correct kernel, with all its measurements pooled. None without one, or if the side gave up."""
        if self.left == "gave up":
            return None
        passed = [attempt for attempt in self.attempts if attempt.passed]
        kernels = ranked(passed, _measurement)
        return _with_pooled(kernels[0]) if kernels else next(iter(passed), None)

    @property
    def pooled(self) -> list[int]:
        """The numbers of the attempts whose measurements `best` has: they are of one text."""
        kernels = ranked([attempt for attempt in self.attempts if attempt.passed], _measurement)
        return [attempt.number for attempt in kernels[0].pooled] if kernels else []

    @property
    def last(self) -> AttemptState | None:
        """The newest kernel; None before the first."""
        return self.attempts[-1] if self.attempts else None


@dataclass
class DuelState:
    """The state of the duel so far. Only `apply` changes it."""

    header: events.DuelHeader
    left: SideState = field(default_factory=SideState)
    right: SideState = field(default_factory=SideState)
    at: float = 0.0
    """Time of the last event, in seconds since the duel began."""
    pauses: list[tuple[float, float | None]] = field(default_factory=list)
    final: events.FinalBegan | None = None
    final_samples: list[events.FinalMeasured] = field(default_factory=list)
    ended: events.DuelEnded | None = None
    abandoned: str = ""

    def side(self, name: events.SideName) -> SideState:
        return self.left if name == "left" else self.right

    @property
    def stage(self) -> Stage:
        if self.ended is not None:
            return "ended"
        if self.abandoned:
            return "abandoned"
        if self.final is not None:
            return "final"
        return "paused" if self.pauses and self.pauses[-1][1] is None else "playing"

    @property
    def over(self) -> bool:
        """Whether the duel has ended or was abandoned."""
        return self.stage in ("ended", "abandoned")

    def clock(self, at: float) -> float:
        """Returns the seconds played until the time `at`, without pauses."""
        stopped = sum(min(end if end is not None else at, at) - start for start, end in self.pauses if start <= at)
        return at - stopped

    def remaining(self, at: float) -> float | None:
        """Returns the seconds left on the clock at the time `at`, at least 0; None without a clock."""
        minutes = self.header.minutes
        return None if minutes is None else max(0.0, minutes * 60 - self.clock(at))

    def apply(self, event: events.AnyDuelEvent) -> None:
        """Applies one event."""
        self.at = max(self.at, event.at)
        ends_pause = isinstance(event, events.Resumed | events.FinalBegan | events.DuelEnded | events.Abandoned)
        if self.stage == "paused" and ends_pause:
            self.pauses[-1] = (self.pauses[-1][0], event.at)
        match event:
            case events.Paused():
                if self.stage == "playing":
                    self.pauses.append((event.at, None))
            case events.FinalBegan():
                self.final = event
            case events.FinalMeasured():
                self.final_samples.append(event)
            case events.DuelEnded():
                self.ended = event
            case events.Abandoned():
                self.abandoned = event.reason
            case events.SideEvent():
                _apply_to_side(self.side(event.side), event)


def _measurement(attempt: AttemptState) -> Measurement | None:
    judged = attempt.judged
    if judged is None or judged.speedup is None:
        return None
    return Measurement(code_hash(attempt.kernel), judged.speedup, judged.clock)


def _with_pooled(kernel: Ranked[AttemptState]) -> AttemptState:
    """Returns the attempt with the longest measurement, with the pooled figures of all measurements of its code."""
    assert kernel.item.judged is not None
    if len(kernel.pooled) == 1:
        return kernel.item
    judged = msgspec.structs.replace(kernel.item.judged, **fields_of(kernel, "speedup outcome clock"))
    return replace(kernel.item, judged=judged)


def _apply_to_side(side: SideState, event: events.SideEvent) -> None:
    match event:
        case events.SideWrote():
            if event.attempt != side.writing:
                side.writing, side.text = event.attempt, ""
            side.text += event.text
        case events.Spending():
            side.tokens, side.usd, side.estimated = event.tokens, event.usd, event.estimated
        case events.Said():
            side.said = event.text
        case events.Submitted():
            side.attempts.append(AttemptState(event.attempt, event.sha256, event.kernel, since=event.at))
            side.writing = 0
        case events.Left():
            if not side.left or event.reason == "gave up":  # a side may also give up after its end
                side.left = event.reason
        case events.KernelJudging() | events.Measured() | events.KernelJudged():
            attempt = next((a for a in reversed(side.attempts) if a.number == event.attempt), None)
            if attempt is None:
                return
            if isinstance(event, events.Measured) and attempt.judged is not None:
                attempt.judged = msgspec.structs.replace(
                    attempt.judged, **fields_of(event, "speedup clock outcome rounds")
                )
            elif isinstance(event, events.Measured):
                attempt.samples.append(event)
            elif isinstance(event, events.KernelJudging):
                attempt.phase, attempt.since = event.phase, event.at
            else:
                attempt.judged, attempt.phase = event, ""


# --- the winner ----------------------------------------------------------------------------------------------


def without_final(state: DuelState, at: float) -> events.DuelEnded:
    """Returns the outcome without a final, when at most one side has a correct kernel."""
    left, right = state.left.best, state.right.best
    assert left is None or right is None
    winner: events.Winner = "left" if left is not None else "right" if right is not None else "draw"
    if winner == "draw":
        reason = "neither player has a correct kernel"
    elif state.side(events.other(winner)).left == "gave up":
        reason = "the other player gave up"
    else:
        reason = "the other player has no correct kernel"
    finalists = (_finalist(state.left), _finalist(state.right))
    return events.DuelEnded(at=at, winner=winner, reason=reason, left=finalists[0], right=finalists[1])


def after_final(state: DuelState, result: Result, at: float) -> events.DuelEnded:
    """Returns the outcome of a final: a side wins if the interval excludes 1, or only its kernel passed; else a draw.

    result: the result of the run of the left kernel against the right one.
    """
    assert result.rival
    speed = by_clock(result.speedup, result.clock)
    ours, theirs = result.verdict is Verdict.PASS, result.rival.verdict is Verdict.PASS
    winner: events.Winner = "draw"
    if ours and theirs and speed is not None:
        winner, reason = decide(speed)
        if (headline := headline_of(result)) is not None and headline.clock != result.clock:
            reason += f"; {state.header.left.short} is {clause(headline.speedup, 'by device time')}"
    elif ours == theirs:
        why = result.told.partition(" (")[0].removeprefix("no claim")  # ": other programs use the cores"
        untold = f"too noisy to tell them apart{why}" if result.rounds else "nothing was timed"
        reason = "neither kernel passed the final" if not ours else untold
    else:
        winner = "left" if ours else "right"
        reason = "the other kernel did not pass the final"
    mine = result.contender_us.call if result.contender_us is not None else None
    others = result.baseline_us.call if result.baseline_us is not None else None
    return view(
        events.DuelEnded, result,
        at=at,
        winner=winner,
        reason=reason,
        speedup=speed,
        left=_finalist(state.left, result.verdict, result.detail, mine),
        right=_finalist(state.right, result.rival.verdict, result.rival.detail, others),
    )  # fmt: skip


def decide(speed: Interval) -> tuple[events.Winner, str]:
    """Returns the winner and the reason, from the interval of the speedup of left over right."""
    match outcome(speed):
        case "faster":
            return "left", "faster in the final"
        case "slower":
            return "right", "faster in the final"
        case "even":
            return "draw", "the interval includes 1"
        case _:
            return "draw", "too noisy to tell them apart"


def _finalist(
    side: SideState, verdict: Verdict | None = None, detail: str = "", us: float | None = None
) -> events.Finalist:
    best, last = side.best, side.last
    if best is not None:
        found = events.Finalist(best.number, best.sha256, verdict or Verdict.PASS, detail, us, best.speedup, best.clock)
    else:
        judged = last.judged if last is not None else None
        why = judged.detail if judged is not None else side.left
        found = events.Finalist(None, None, judged.verdict if judged is not None else None, why, None, None)
    return msgspec.structs.replace(found, **fields_of(side, "stopped usd estimated"))
