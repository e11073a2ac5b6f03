"""Colours of the command line. Texts contain marks, which are replaced when a text is written.

No other escape sequence reaches the terminal.
"""

import re

import click

from arena.words.untrusted_text import printable

_CODES = {"\ufdd0": click.style("", fg="green", reset=False), "\ufdd1": click.style("", fg="red", reset=False)}
_GREEN, _RED = _CODES
_BOLD, _END, _STRUCK = "\ufdd2", "\ufdd3", "\ufdd4"
_CODES |= {_BOLD: click.style("", bold=True, reset=False), _END: click.style("")}
_CODES |= {_STRUCK: click.style("", strikethrough=True, reset=False)}
_MARKS = re.compile(f"([{''.join(_CODES)}])")


def green(text: str, bold: bool = False) -> str:
    """Returns the text in green."""
    return f"{_GREEN}{_BOLD if bold else ''}{text}{_END}"


def red(text: str, bold: bool = False) -> str:
    """Returns the text in red."""
    return f"{_RED}{_BOLD if bold else ''}{text}{_END}"


def struck(text: str) -> str:
    """Returns the text struck out; without colours it is shown unchanged."""
    return f"{_STRUCK}{text}{_END}"


def rendered(text: str, colour: bool = False) -> str:
    """Returns a text ready to print: cleaned, and with colours if `colour`.

    A mark in untrusted text can only colour text up to the end of this one.
    """
    parts = _MARKS.split(text)
    codes = _CODES if colour else dict.fromkeys(_CODES, "")
    shown = "".join(codes[part] if part in codes else printable(part, tab=0) for part in parts)
    return shown + codes[_END] if len(parts) > 1 else shown
