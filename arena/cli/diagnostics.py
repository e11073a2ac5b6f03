"""Output of the command line on stderr."""

import os
import sys
from typing import TextIO

import click


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
        click.echo(text, err=True, color=wants_colour(sys.stderr))
    except (OSError, ValueError):
        return
