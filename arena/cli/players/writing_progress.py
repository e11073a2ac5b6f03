"""A model's progress on stderr: one line that is redrawn on a terminal, a line an answer and a verdict elsewhere."""

import time

from arena.cli.diagnostics import LiveLine, say
from arena.cli.output import compact
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
        self._shown = LiveLine()
        self._step = 0
        self._began = self._drawn_at = 0.0
        self._characters = 0
        self._doing = ""

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
                self._line(f"calls {event.tool}")
                self._doing = f"in {event.tool}"
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
        self._shown.clear()

    def _line(self, text: str) -> None:
        self.clear()
        self._doing = ""
        say(f"{self._player} {self._step}: {text}")

    def _redraw(self) -> None:
        now = time.monotonic()
        if not self._shown.live or not self._doing or now - self._drawn_at < REDRAW_S:
            return
        self._drawn_at = now
        tokens = self._characters / CHARACTERS_PER_TOKEN
        words = f"{self._doing}  ~{tokens:.0f} tokens  {now - self._began:.0f} s"
        self._shown.draw(f"{self._player} {self._step}: {words}")
