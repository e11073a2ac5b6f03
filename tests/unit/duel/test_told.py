"""A duel from its start to each of its ends: all that the screens and the card say after every event."""

from copy import deepcopy
from pathlib import Path

from msgspec.structs import replace
from stored_runs import result

from arena.duel import events
from arena.duel.card import abandoned_words, duel_report, svg_card, text_card
from arena.duel.journal import read_duel, read_duel_header
from arena.duel.state import DuelState, after_final, without_final
from sandbox.protocol.events import Interval, Microseconds, RivalResult, Speedup
from sandbox.protocol.verdict import Verdict
from sandbox.timing.interval import outcome
from screens.duel import points_of, words
from screens.duel.replay import _mark

FAST = Interval(1.31, 1.28, 1.34)
RECORDINGS = Path(__file__).parents[2] / "ui" / "recordings"


def seen(state: DuelState, event: events.AnyDuelEvent) -> list[str]:
    """What two seconds later is on a wide and on a narrow screen, with its colours."""
    now, lines = state.at + 2.0, [f"seek bar: {_mark(event)}"] if _mark(event) else []
    if state.ended is not None:
        lines += [words.result(state).markup, text_card(state.header, state.ended)]
    for brief, width in (False, 120), (True, 44):
        lines += [words.title(state, width).markup, words.score(state, brief).markup]
        for name in events.SIDES:
            side = state.side(name)
            told = words.final_status(state, name, brief) if state.ended else words.status(side, now, 2.0, brief)
            lines += [words.pane_title(state, name, width // 2), told.markup]
            lines += [
                words.attempts(side, name, name, state.over).markup,
                f"race: {points_of(state, name)} {side.text!r}",
            ]
    return [*lines, words.stage_line(state, now).markup, abandoned_words(state)]


def told_of(recording: Path) -> tuple[list[str], DuelState]:
    """What is new after each event, and the state after the last one."""
    state = DuelState(read_duel_header(recording))
    told, before = [], set()
    for event in read_duel(recording):
        state.apply(event)
        lines = seen(state, event)
        told += [f"--- {event.at:g} s", *(line for line in lines if line not in before)]
        before = set(lines)
    return told, state


def test_duel_without_limits_is_told_to_its_end(snapshot) -> None:
    told, state = told_of(RECORDINGS / "duel.jsonl")
    assert "\n".join([*told, *map(str, duel_report(state).items())]) == snapshot


def test_each_end_of_a_duel_is_told(snapshot) -> None:
    told, state = told_of(RECORDINGS / "duel_to_final.jsonl")
    ours = result(
        Verdict.PASS, FAST, rounds=11, outcome="faster", clock="call",
        baseline_us=Microseconds(20.0, None), contender_us=Microseconds(15.3, None),
        rival=RivalResult(verdict=Verdict.PASS, detail="", failure=None, sha256=""),
    )  # fmt: skip
    lost = replace(ours, rival=replace(ours.rival, verdict=Verdict.CRASH, detail="[it] fell"))
    calls = Interval(0.5, 0.4, 0.8), Interval(1.5, 0.99, 2.2), Interval(0.95, 0.9, 1.01)
    slow, noisy, even = (replace(ours, outcome=outcome(call), speedup=Speedup(call, None)) for call in calls)
    even = replace(even, speedup=replace(even.speedup, device=Interval(0.95, 0.93, 0.97)))
    busy = replace(ours, speedup=None, told="no claim: other programs use the cores (80 % of the time)")
    wrong, both = replace(ours, verdict=Verdict.WRONG_RESULT, detail="off"), replace(lost, verdict=Verdict.CRASH)
    ends = [after_final(state, each, 140.0) for each in (ours, lost, slow, noisy, even, busy, wrong, both)]
    ends.append(without_final(DuelState(state.header), 140.0))
    for end in [*ends, events.Abandoned(at=135.0, reason="it was\x1b left")]:
        ended = deepcopy(state)
        ended.apply(end)
        lines = seen(ended, end)
        told += [f"--- {end.reason!r}", *(line for line in lines if line not in told)]
        told += svg_card(ended).splitlines() if ended.ended and ended.ended.winner == "right" else []
    without_kernels = DuelState(state.header)
    without_kernels.apply(ends[0])
    assert "\n".join(told + svg_card(without_kernels).splitlines()) == snapshot
