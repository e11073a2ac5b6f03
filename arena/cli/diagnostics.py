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
    """Returns whether to print in colour: on a terminal that is not dumb, unless NO_COLOR is set."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def complain(message: str, advice: str = "") -> None:
    """Prints an error message with its advice below."""
    text = f"pkb-arena: {message}"
    if advice:
        text += f"\n  {advice}"
    say(text)


def say(text: str) -> None:
    """Prints one or more lines to stderr. Ignores errors, such as a closed stderr."""
    try:
        colour = wants_colour(sys.stderr)
        click.echo(rendered(text, colour), err=True, color=colour)
    except (OSError, ValueError):
        return


class LiveLine:
    """A line on stderr that is redrawn in place. Draws nothing if stderr is not a terminal."""

    def __init__(self) -> None:
        self.live = sys.stderr.isatty()
        self._width = 0
        self._drawn_at = 0.0

    def draw(self, text: str, force: bool = False) -> None:
        """Replaces the line, cut to the terminal's width. Skipped within REDRAW_S of the last draw, unless forced."""
        now = time.monotonic()
        if not self.live or (now - self._drawn_at < REDRAW_S and not force):
            return
        self._drawn_at = now
        line = rendered(text).replace("\n", " ")[: max(20, shutil.get_terminal_size().columns - 1)]
        self._write("\r" + line.ljust(self._width))
        self._width = len(line)

    def clear(self) -> None:
        """Erases the line."""
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
