"""A model's progress on stderr: one line that is redrawn on a terminal, a line an answer and a verdict elsewhere."""

import shutil
import sys
import time

import click

from arena.cli.diagnostics import say
from arena.cli.output import compact
from arena.foreign_text import printable
from arena.models.budget import CHARACTERS_PER_TOKEN, Spent
from arena.players.trace import (
    Answered,
    AnyTraceEvent,
    Asked,
    Called,
    Counted,
    Drafted,
    Judged,
    Mused,
    Retried,
    Returned,
    Wrote,
)

REDRAW_S = 0.1


def spent_text(spent: Spent) -> str:
    """ "12.3k tokens, $0.21"; a tilde where part of it is estimated."""
    tokens = f"{spent.tokens / 1000:.1f}k" if spent.tokens >= 1000 else str(spent.tokens)
    money = f", ${spent.usd:.4f}" if spent.usd else ""
    return f"{'~' if spent.estimated else ''}{tokens} tokens{money}"


class WritingProgress:
    """Listens to a trace."""

    def __init__(self, player: str) -> None:
        self._player = player
        self._live = sys.stderr.isatty()
        self._step = 0
        self._began = self._drawn_at = 0.0
        self._characters = 0
        self._doing = ""
        self._width = 0

    def event(self, event: AnyTraceEvent) -> None:
        """Shows what an event changed."""
        self._step = event.step or self._step
        match event:
            case Asked():
                self._characters, self._doing = 0, "waiting"
                self._began = time.monotonic()
            case Wrote() | Drafted():
                self._characters += len(event.text)
                self._doing = "writing"
            case Mused():
                self._characters += len(event.text)
                self._doing = "thinking"
            case Retried():
                self._line(f"{event.reason}; again in {event.wait_s:.1f} s")
            case Called():
                self._line(f"calls {printable(event.tool)}")
                self._doing = f"in {printable(event.tool)}"
            case Returned():
                self._doing = "waiting"
            case Answered():
                words = event.reason or f"a kernel of {len(event.source.splitlines())} lines"
                self._line(f"{words}, {spent_text(event.spent)}")
            case Judged():
                self._line(compact(event.report))
            case Counted():
                pass
        self._redraw()

    def clear(self) -> None:
        """Leaves nothing of the redrawn line."""
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
            self._width = 0

    def _line(self, text: str) -> None:
        self.clear()
        self._doing = ""
        say(f"{self._player} {self._step}: {text}")

    def _redraw(self) -> None:
        now = time.monotonic()
        if not self._live or not self._doing or now - self._drawn_at < REDRAW_S:
            return
        self._drawn_at = now
        tokens = self._characters / CHARACTERS_PER_TOKEN
        line = f"{self._player} {self._step}: {self._doing}  ~{tokens:.0f} tokens  {now - self._began:.0f} s"
        line = click.unstyle(line)[: max(20, shutil.get_terminal_size().columns - 1)]
        sys.stderr.write("\r" + line.ljust(self._width))
        sys.stderr.flush()
        self._width = max(self._width, len(line))
