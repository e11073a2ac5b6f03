"""A model's trace as text or JSON, for `pkb-arena replay`."""

from pathlib import Path

from arena.cli.output import compact, print_json, print_line
from arena.cli.players.writing_progress import spent_text
from arena.players.trace import (
    Answered,
    AnyTraceEvent,
    Asked,
    Called,
    Ended,
    Judged,
    Retried,
    Returned,
    read_trace,
    read_trace_header,
)


def is_trace(path: Path) -> bool:
    """The file is a model's trace, not a run's journal."""
    try:
        read_trace_header(path)
    except (OSError, ValueError):
        return False
    return True


def tell_trace(path: Path, as_json: bool, source: bool) -> None:
    """Prints a trace: for people, as its events, or the best kernel's text alone."""
    header = read_trace_header(path)
    events = list(read_trace(path))
    if source:
        print_line(_best_source(events).rstrip("\n"))
        return
    if as_json:
        print_json(header)
    else:
        print_line(f"{header.player} ({header.model}) on {header.problem_id} {header.slug}")
    for event in events:
        if as_json:
            print_json(event)
        elif line := _line(event):
            print_line(f"{event.at:8.1f} s  {line}")


def _best_source(events: list[AnyTraceEvent]) -> str:
    sources = {event.step: event.source for event in events if isinstance(event, Answered) and event.source}
    best = next((event.best_step for event in events if isinstance(event, Ended)), None)
    return sources.get(best or 0) or next(iter(sources.values()), "")


def _line(event: AnyTraceEvent) -> str:
    match event:
        case Asked():
            return f"{event.step}: asked, {sum(len(turn.content) for turn in event.messages)} characters"
        case Retried():
            return f"{event.step}: {event.reason}; again in {event.wait_s:.1f} s"
        case Called():
            return f"{event.step}: calls {event.tool}, {len(event.arguments)} characters"
        case Returned():
            first = event.text.strip().partition("\n")[0]
            return f"{event.step}: {'✗ ' if event.error else ''}{event.tool} says: {first[:120]}"
        case Answered():
            words = event.reason or f"a kernel of {len(event.source.splitlines())} lines"
            return f"{event.step}: {words}, {spent_text(event.spent)}"
        case Judged():
            return f"{event.step}: {compact(event.report)}{'  (gain)' if event.gain else ''}"
        case Ended():
            return f"ended: {event.reason}; best {event.best_step or 'none'}; {spent_text(event.spent)}"
        case _:
            return ""
