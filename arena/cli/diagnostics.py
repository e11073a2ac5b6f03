"""Output of the command line on stderr."""

import os
import shutil
import sys
import time
from typing import TextIO

import click

from arena.cli.colour import rendered

REDRAW_S = 0.1


def wants_colour(stream: TextIO) -> bool:
    """Colour only on a terminal, and only where NO_COLOR does not forbid it."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def complain(message: str, advice: str = "") -> None:
    """Prints an error: the fault, and the advice below it."""
    text = f"pkb-arena: {message}"
    if advice:
        text += f"\n  {advice}"
    say(text)


def say(text: str) -> None:
    """One line (or a few) to stderr. A stderr that is gone stops nothing."""
    try:
        colour = wants_colour(sys.stderr)
        click.echo(rendered(text, colour), err=True, color=colour)
    except (OSError, ValueError):
        return


class LiveLine:
    """A line on stderr that is drawn again and again. Where stderr is no terminal, nothing is."""

    def __init__(self) -> None:
        self.live = sys.stderr.isatty()
        self._width = 0
        self._drawn_at = 0.0

    def draw(self, text: str, force: bool = False) -> None:
        """The line from now on, cut off at the terminal's edge. Ignored soon after the last one, unless it is forced."""
        now = time.monotonic()
        if not self.live or (now - self._drawn_at < REDRAW_S and not force):
            return
        self._drawn_at = now
        line = rendered(text).replace("\n", " ")[: max(20, shutil.get_terminal_size().columns - 1)]
        self._write("\r" + line.ljust(self._width))
        self._width = len(line)

    def clear(self) -> None:
        """Leaves nothing of the line."""
        if self._width:
            self._write("\r" + " " * self._width + "\r")
            self._width = 0

    def _write(self, text: str) -> None:
        if not self.live:
            return
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):
            self.live = False
