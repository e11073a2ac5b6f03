"""Text that others made (kernels, files' names, journals, bundles), made safe to show: nothing in it draws but characters."""

import re
from collections.abc import Callable

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor moves
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|$)"  # OSC, DCS and the other strings
    r"|\x1b[ -/]*[0-~]?"
)
_UNSHOWN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls; 9b begins a sequence as ESC [ does
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction marks
    "\u2028\u2029"  # other ends of a line
    "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff"  # no characters: XML and UTF-8 have no place for them
    "\U000e0000-\U000e007f"  # tags, which repeat ASCII unseen
)
_CONTROLS = re.compile(f"[{_UNSHOWN}]")
MASK = "\N{REPLACEMENT CHARACTER}"


def printable(text: str, tab: int = 4) -> str:
    """`text` without escape sequences, control characters and direction marks; tabs become spaces, with 0 they stay.

    Line feeds stay; a carriage return inside a line ends it, as a progress bar would have drawn it.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = _CONTROLS.sub("", _ESCAPES.sub("", text))
    return text.expandtabs(tab) if tab else text


def masked(text: str, mask: Callable[[str], str] = lambda character: MASK) -> str:
    """`text` with a sign in place of each character that `printable` takes out. Columns stay, tabs and line feeds too.

    mask: the sign for a character.
    """
    return _CONTROLS.sub(lambda found: mask(found[0]), text)


def escaped_json(text: str) -> str:
    """A JSON text with the same values, whose strings have escapes in place of what `printable` takes out."""
    return _CONTROLS.sub(lambda found: _escape(ord(found[0])), text)


def _escape(code: int) -> str:
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
