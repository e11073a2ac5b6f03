"""Makes untrusted text (kernels, file names, journals, bundles) safe to show on a terminal."""

import re
from collections.abc import Callable

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor moves
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|$)"  # OSC, DCS and other string sequences
    r"|\x1b[ -/]*[0-~]?"
)
_UNSHOWN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters; 9b starts a sequence like ESC [
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction marks
    "\u2028\u2029"  # other line separators
    "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff"  # surrogates and noncharacters, not allowed in UTF-8 or XML
    "\U000e0000-\U000e007f"  # tag characters: an invisible copy of ASCII
)
_CONTROLS = re.compile(f"[{_UNSHOWN}]")
MASK = "\N{REPLACEMENT CHARACTER}"


def printable(text: str, tab: int = 4) -> str:
    """Removes escape sequences, control characters and direction marks from `text`. Keeps line feeds.

    A carriage return becomes a line feed, so that each state of a progress bar gets its own line.

    tab: tabs become spaces up to the next multiple of this column; 0: tabs stay.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = _CONTROLS.sub("", _ESCAPES.sub("", text))
    return text.expandtabs(tab) if tab else text


def one_line(text: str) -> str:
    """Returns the text without control characters and line breaks."""
    return " ".join(printable(text).split())


def masked(text: str, mask: Callable[[str], str] = lambda character: MASK) -> str:
    """Replaces each character that `printable` removes; columns do not shift. Keeps tabs and line feeds.

    mask: returns the replacement for a character.
    """
    return _CONTROLS.sub(lambda found: mask(found[0]), text)


def escaped_json(text: str) -> str:
    """Escapes in a JSON text the characters that `printable` removes. The values stay the same."""
    return _CONTROLS.sub(lambda found: _escape(ord(found[0])), text)


def _escape(code: int) -> str:
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
