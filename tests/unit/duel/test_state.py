"""The duel's state machine: folding, the clock, the best kernel, and who has won."""

import msgspec
from stored_runs import duel_header

from arena.duel import events
from arena.duel.state import DuelState, without_final
from sandbox.protocol.events import Interval
from sandbox.protocol.verdict import Verdict
from screens.duel.words import score, title

FAST, SLOW, EVEN = Interval(1.3, 1.2, 1.4), Interval(0.7, 0.6, 0.8), Interval(1.0, 0.95, 1.05)


def header(minutes: float | None = 1.0) -> events.DuelHeader:
    made = duel_header("you", "house", created=0.0, title="Sum all-reduce <of one>", minutes=minutes)
    return msgspec.structs.replace(made, right=events.DuelPlayer("house", "house"))


def handed_in(
    side: str, attempt: int, verdict: Verdict = Verdict.PASS, speedup: Interval | None = EVEN, source: str = ""
) -> list[events.AnyDuelEvent]:
    return [
        events.Submitted(
            at=1.0, side=side, attempt=attempt, sha256=f"{side}{attempt}", source=source or f"x = {attempt}"
        ),
        events.KernelJudged(
            at=2.0,
            side=side,
            attempt=attempt,
            run_id="r",
            verdict=verdict,
            outcome="",
            speedup=speedup if verdict is Verdict.PASS else None,
            detail="why",
        ),
    ]


def state(*happened: events.AnyDuelEvent, minutes: float | None = 1.0) -> DuelState:
    folded = DuelState(header(minutes))
    for event in happened:
        folded.apply(event)
    return folded


def test_best_kernel_is_not_the_luckiest_measurement() -> None:
    usual, lucky = Interval(1.2, 1.1, 1.3), Interval(3.0, 2.75, 3.25)
    duel = state(
        *handed_in("left", 1, speedup=usual, source="x = 1"),
        *handed_in("left", 2, speedup=lucky, source="# again\nx = 1"),
        *handed_in("left", 3, speedup=usual, source="# and again\nx = 1"),
        *handed_in("left", 4, speedup=Interval(1.4, 1.3, 1.5), source="x = 2"),
        *handed_in("right", 1, speedup=usual, source="x = 1"),
        *handed_in("right", 2, speedup=lucky, source="\nx = 1"),
    )
    assert "(kernels 1, 2: one text)" in score(duel).plain
    assert "1, 2, 3" not in score(duel).plain  # of the player whose best kernel is another
    assert duel.left.best.number == 4
    assert duel.right.best.speedup == Interval(2.1, 1.925, 2.275)
    assert title(duel, 40).plain == "duel  1 · Sum all-reduce <of…   1 min"
    assert title(duel, 60).plain == "duel  1 · Sum all-reduce <of one>   1 min · tiny · bfloat16"


def test_agreed_side_can_give_up_but_not_reverse() -> None:
    reasons = ("agreed", "gave up", "time")
    duel = state(*handed_in("left", 1), *(events.Left(side="left", reason=reason) for reason in reasons))
    assert duel.left.left == "gave up"
    assert duel.left.best is None


def test_a_verdict_belongs_to_its_attempt() -> None:
    duel = state(
        events.Submitted(side="left", attempt=1, sha256="a", source=""),
        events.Submitted(side="left", attempt=2, sha256="b", source=""),
        events.Measured(side="left", attempt=1, round=1, rounds=2, speedup=FAST),
        events.Measured(side="left", attempt=2, round=1, rounds=2, speedup=SLOW, clock="device"),
        handed_in("left", 1)[1],
    )
    assert duel.left.attempts[0].passed
    assert (duel.left.attempts[1].clock, duel.left.attempts[1].speedup) == ("device", SLOW)
    assert duel.left.attempts[1].judged is None


def test_one_right_kernel_wins_without_a_final() -> None:
    duel = state(*handed_in("left", 1, Verdict.WRONG_RESULT), *handed_in("right", 1))
    duel.left.usd = 0.5
    ended = without_final(duel, 3.0)
    assert (ended.left.usd, ended.right.usd) == (0.5, 0.0)
    assert (ended.winner, ended.left.verdict, ended.right.attempt) == ("right", Verdict.WRONG_RESULT, 1)
    assert ended.left.detail == "why"
    assert ended.reason == "the other player has no correct kernel"
    duel.apply(ended)
    assert duel.stage == "ended"


def test_long_name_is_shown_by_kind_and_end():
    assert events.short_name("model:opus") == "model:opus"
    long = "agent:/home/somebody/agents/of/mine/first_agent.py --fast"
    shown = events.short_name(long)
    assert shown.startswith("agent:…")
    assert len(shown) == events.MOST_NAME
    assert long.endswith(shown.removeprefix("agent:…"))
    assert len(events.short_name("x" * 100)) == events.MOST_NAME
