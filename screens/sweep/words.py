"""The texts of a sweep's cells: always a sign beside a colour."""

import time

from arena.sweep.grid import Square, SweepGrid
from arena.words.headline import TOO_NOISY
from arena.words.untrusted_text import printable
from screens import figures

WAITING = "…"
_MOST_NAME = 22
STILL_S = 90.0
"""Seconds without a new line after which the sweep seems to have stopped."""


def square_words(square: Square | None, attempts: int) -> tuple[str, str]:
    """(words, theme colour) of a square: the best attempt, and how many of several are correct."""
    if square is None or not square.marks:
        return (WAITING, "accent") if square is not None and square.written else ("·", "muted")
    count = f" {square.passed}/{len(square.marks)}" if attempts > 1 and len(square.marks) > 1 else ""
    best = square.best
    assert best is not None
    if best.voided:
        return f"✗ voided{count}", "muted"
    if not best.passed:
        return f"✗ {_SHORT.get(best.verdict, best.verdict.lower().replace('_', ' '))}{count}", "error"
    only = "¹" if best.one_size_only else ""
    if best.speedup is None:
        return f"✓ correct{only}{count}", "success"
    if best.outcome == TOO_NOISY:  # a figure would be read as the result
        return f"~ {best.outcome}{only}{count}", figures.outcome_style(best.outcome)
    sign = figures.outcome_sign(best.outcome)
    return f"{sign} {figures.factor(best.speedup)}×{only}{count}", figures.outcome_style(best.outcome)


_SHORT = {
    "WRONG_RESULT": "wrong",
    "WRONG_STRUCTURE": "structure",
    "COMPILE_ERROR": "compile",
    "LOAD_ERROR": "load",
    "NO_KERNEL": "no kernel",
    "HARNESS_ERROR": "harness",
    "OUT_OF_MEMORY": "memory",
}


def standing_words(grid: SweepGrid, now: float) -> str:
    """ "132 results · 71 correct · $0.42 · updated 4 s ago"."""
    if not grid.sessions:
        return "empty"
    parts = [f"{grid.results} result{'s' * (grid.results != 1)}", f"{grid.passed} correct"]
    waiting = sum(square.waiting for square in grid.squares.values())
    if waiting:
        parts.append(f"{waiting} waiting for a verdict")
    if grid.usd:
        parts.append(f"${grid.usd:.2f}")
    if grid.sessions > 1:
        parts.append(f"{grid.sessions} sessions")
    since = max(0.0, now - grid.last_at)
    when = time.strftime("%d %b %H:%M", time.localtime(grid.last_at))
    parts.append(f"updated {since:.0f} s ago" if since < STILL_S else f"updated {when}")
    return " · ".join(parts)


def player_heading(player: str) -> str:
    """A player's name as a column's head."""
    return figures.cut(printable(player), _MOST_NAME)
