"""Prints a duel as text, one line per event, while it is played or replayed (`pkb-arena replay`)."""

import time
from pathlib import Path

from arena.cli.output import print_json, print_line
from arena.duel import events
from arena.duel.card import speed_words, text_card
from arena.duel.journal import read_duel, read_duel_header
from arena.duel.state import DuelState
from arena.paths import Paths
from sandbox.protocol.verdict import Verdict


def duel_line(header: events.DuelHeader, event: events.AnyDuelEvent) -> str:
    """Formats an event in one line with its time; empty for events that are not shown."""
    words = _words(header, event)
    return f"{_clock(event.at)}  {words}" if words else ""


def _words(header: events.DuelHeader, event: events.AnyDuelEvent) -> str:
    match event:
        case events.Submitted():
            lines = len(event.source.splitlines())
            return f"{_who(header, event)} submits kernel {event.attempt} ({lines} lines)"
        case events.KernelJudged():
            return f"{_who(header, event)} kernel {event.attempt}: {_verdict(event)}"
        case events.Said():
            return f"{_who(header, event)}: {event.text}"
        case events.Left():
            return (
                f"{_who(header, event)} is {event.reason}"
                if event.reason == "done"
                else (f"{_who(header, event)} leaves: {event.reason}")
            )
        case events.Paused():
            return "paused"
        case events.Resumed():
            return "resumed"
        case events.FinalBegan():
            return (
                f"final: kernel {event.left} of {header.left.name} against kernel {event.right} of {header.right.name}"
            )
        case events.FinalMeasured() if event.round == event.rounds:
            rounds = "1 round" if event.round == 1 else f"{event.round} rounds"
            return f"final: {speed_words(event.speedup, event.clock)} after {rounds}"
        case events.Abandoned():
            return f"abandoned: {event.reason}"
        case events.DuelEnded():
            return "decided"
        case _:
            return ""


def _who(header: events.DuelHeader, event: events.Submitted | events.KernelJudged | events.Said | events.Left) -> str:
    return f"{header.player(event.side).name} ({event.side})"


def _verdict(event: events.KernelJudged) -> str:
    if event.verdict is not Verdict.PASS:
        return f"✗ {event.verdict}  {event.detail}"
    return f"✓ PASS  {speed_words(event.speedup, event.clock) if event.speedup is not None else ''}".rstrip()


def _clock(at: float) -> str:
    return f"{int(at) // 60:02d}:{at % 60:04.1f}"


def find_duel(name: str, paths: Paths) -> tuple[Path, events.DuelHeader] | None:
    """Returns the journal and header of a duel, by id or file; None if there is no such duel."""
    for path in (Path(name), paths.duels / f"{name}.jsonl"):
        try:
            return path, read_duel_header(path)
        except (OSError, ValueError):
            continue
    return None


def tell_duel(path: Path, header: events.DuelHeader, speed: float | None, as_json: bool) -> None:
    """Prints a duel's events. speed: divides the pauses between events; None: no pauses."""
    state = DuelState(header)
    if as_json:
        print_json(header)
    for event in read_duel(path):
        if speed is not None:
            time.sleep(max(0.0, event.at - state.at) / speed)
        state.apply(event)
        if as_json:
            print_json(event)
        elif line := duel_line(header, event):
            print_line(line)
    if state.ended is not None and not as_json:
        print_line()
        print_line(text_card(header, state.ended))
