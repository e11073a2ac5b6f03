"""A duel as text, one line an event: for a duel that is played and for one that is replayed."""

from arena.duel.card import speed_words
from arena.duel.events import (
    Abandoned,
    AnyDuelEvent,
    DuelEnded,
    DuelHeader,
    FinalBegan,
    FinalMeasured,
    KernelJudged,
    Left,
    Paused,
    Resumed,
    Said,
    Submitted,
)
from sandbox.protocol.verdict import Verdict


def duel_line(header: DuelHeader, event: AnyDuelEvent) -> str:
    """One event in one line, with the time; empty for what is no news by itself."""
    words = _words(header, event)
    return f"{_clock(event.at)}  {words}" if words else ""


def _words(header: DuelHeader, event: AnyDuelEvent) -> str:
    match event:
        case Submitted():
            lines = len(event.source.splitlines())
            return f"{_who(header, event)} submits kernel {event.attempt} ({lines} lines)"
        case KernelJudged():
            return f"{_who(header, event)} kernel {event.attempt}: {_verdict(event)}"
        case Said():
            return f"{_who(header, event)}: {event.text}"
        case Left():
            return (
                f"{_who(header, event)} is {event.reason}"
                if event.reason == "done"
                else (f"{_who(header, event)} leaves: {event.reason}")
            )
        case Paused():
            return "paused"
        case Resumed():
            return "resumed"
        case FinalBegan():
            return f"final: kernel {event.left} of {header.left.name} against kernel {event.right} of {header.right.name}"
        case FinalMeasured() if event.round == event.rounds:
            rounds = "1 round" if event.round == 1 else f"{event.round} rounds"
            return f"final: {speed_words(event.speedup, event.clock)} after {rounds}"
        case Abandoned():
            return f"abandoned: {event.reason}"
        case DuelEnded():
            return "decided"
        case _:
            return ""


def _who(header: DuelHeader, event: Submitted | KernelJudged | Said | Left) -> str:
    return f"{header.player(event.side).name} ({event.side})"


def _verdict(event: KernelJudged) -> str:
    if event.verdict is not Verdict.PASS:
        return f"✗ {event.verdict}  {event.detail}"
    return f"✓ PASS  {speed_words(event.speedup, event.clock) if event.speedup is not None else ''}".rstrip()


def _clock(at: float) -> str:
    return f"{int(at) // 60:02d}:{at % 60:04.1f}"
