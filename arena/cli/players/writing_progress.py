"""Prints a model's work in lines: its progress on stderr, and its trace for `pkb-arena replay`."""

import time
from pathlib import Path

from arena.cli.diagnostics import LiveLine, say
from arena.cli.output import compact, print_json, print_line
from arena.models.budget import CHARACTERS_PER_TOKEN, Spent
from arena.players import trace
from arena.workspace.kernel_folder import shown_text
from sandbox.protocol.kernel_files import Kernel


def spent_text(spent: Spent) -> str:
    """Formats tokens and cost: "12.3k tokens, $0.2100". A leading tilde: part of it is estimated."""
    tokens = f"{spent.tokens / 1000:.1f}k" if spent.tokens >= 1000 else str(spent.tokens)
    money = f", ${spent.usd:.4f}" if spent.usd else ""
    return f"{'~' if spent.estimated else ''}{tokens} tokens{money}"


class WritingProgress:
    """Shows the events of a trace: a line per answer and verdict, and on a terminal a line that is redrawn."""

    def __init__(self, player: str) -> None:
        self._player = player
        self._shown = LiveLine()
        self._step = 0
        self._began = 0.0
        self._characters = 0
        self._doing = ""

    def event(self, event: trace.AnyTraceEvent) -> None:
        """Updates the display after an event."""
        self._step = event.step or self._step
        match event:
            case trace.Asked():
                self._characters, self._doing = 0, "waiting"
                self._began = time.monotonic()
            case trace.Wrote() | trace.Drafted():
                self._characters += len(event.text)
                self._doing = "writing"
            case trace.Mused():
                self._characters += len(event.text)
                self._doing = "thinking"
            case trace.Retried() | trace.Called() | trace.Answered() | trace.Judged():
                self.clear()
                say(f"{self._player} {_line(event)}")
                self._doing = f"in {event.tool}" if isinstance(event, trace.Called) else ""
            case trace.Returned():
                self._doing = "waiting"
            case trace.Counted():
                pass
        self._redraw()

    def clear(self) -> None:
        """Erases the redrawn line."""
        self._shown.clear()

    def _redraw(self) -> None:
        if not self._doing:
            return
        tokens, seconds = self._characters / CHARACTERS_PER_TOKEN, time.monotonic() - self._began
        self._shown.draw(f"{self._player} {self._step}: {self._doing}  ~{tokens:.0f} tokens  {seconds:.0f} s")


def is_trace(path: Path) -> bool:
    """Returns whether a file is a model's trace, not a run's journal."""
    try:
        trace.read_trace_header(path)
    except (OSError, ValueError):
        return False
    return True


def tell_trace(path: Path, as_json: bool, source: bool) -> None:
    """Prints a trace as text or as JSON events, or only the best kernel's source."""
    header = trace.read_trace_header(path)
    events = list(trace.read_trace(path))
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


def _best_source(events: list[trace.AnyTraceEvent]) -> str:
    answers = [event for event in events if isinstance(event, trace.Answered) and event.source]
    sources = {event.step: shown_text(Kernel(event.source, event.files)) for event in answers}
    best = next((event.best_step for event in events if isinstance(event, trace.Ended)), None)
    return sources.get(best or 0) or next(iter(sources.values()), "")


def _line(event: trace.AnyTraceEvent) -> str:
    match event:
        case trace.Asked():
            return f"{event.step}: asked, {sum(len(turn.content) for turn in event.messages)} characters"
        case trace.Retried():
            return f"{event.step}: {event.reason}; again in {event.wait_s:.1f} s"
        case trace.Called():
            return f"{event.step}: calls {event.tool}, {len(event.arguments)} characters"
        case trace.Returned():
            first = event.text.strip().partition("\n")[0]
            return f"{event.step}: {'✗ ' if event.error else ''}{event.tool} says: {first[:120]}"
        case trace.Answered():
            words = event.reason or f"a kernel of {len(event.source.splitlines())} lines"
            return f"{event.step}: {words}, {spent_text(event.spent)}"
        case trace.Judged():
            return f"{event.step}: {compact(event.report)}{'  (gain)' if event.gain else ''}"
        case trace.Ended():
            return f"ended: {event.reason}; best {event.best_step or 'none'}; {spent_text(event.spent)}"
        case _:
            return ""
