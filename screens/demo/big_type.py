"""Big type: words in block characters, in the largest size that fits.

A glyph has 5 x 7 dots. Textual's own `Digits` has only digits, three rows high, in thin lines. The fonts of pyfiglet
(over a megabyte) are drawn with letters and slashes. Here a dot is a block, so that strokes can be read from far away.
"""

from collections.abc import Callable

DOTS_WIDE, DOTS_HIGH = 5, 7
_BLOCKS = " ▘▝▀▖▌▞▛▗▚▐▜▄▙▟█"
"""The index is a sum of bits: 1 upper left, 2 upper right, 4 lower left, 8 lower right."""
_GLYPHS = {
    "0": "3e5149453e", "1": "00427f4000", "2": "4261514946", "3": "2141454b31", "4": "1814127f10",
    "5": "2745454539", "6": "3c4a494930", "7": "0171090503", "8": "3649494936", "9": "064949291e",
    "A": "7e1111117e", "B": "7f49494936", "C": "3e41414122", "D": "7f4141221c", "E": "7f49494941",
    "F": "7f09090901", "G": "3e4149497a", "H": "7f0808087f", "I": "00417f4100", "J": "2040413f01",
    "K": "7f08142241", "L": "7f40404040", "M": "7f020c027f", "N": "7f0408107f", "O": "3e4141413e",
    "P": "7f09090906", "Q": "3e4151215e", "R": "7f09192946", "S": "4649494931", "T": "01017f0101",
    "U": "3f4040403f", "V": "1f2040201f", "W": "3f4038403f", "X": "6314081463", "Y": "0708700807",
    "Z": "6151494543", "a": "2054545478", "b": "7f48444438", "c": "3844444420", "d": "384444487f",
    "e": "3854545418", "f": "087e090102", "g": "0c5252523e", "h": "7f08040478", "i": "00447d4000",
    "j": "2040443d00", "k": "7f10284400", "l": "00417f4000", "m": "7c04180478", "n": "7c08040478",
    "o": "3844444438", "p": "7c14141408", "q": "081414187c", "r": "7c08040408", "s": "4854545420",
    "t": "043f444020", "u": "3c4040207c", "v": "1c2040201c", "w": "3c4030403c", "x": "4428102844",
    "y": "0c5050503c", "z": "4464544c44", " ": "0000000000", ".": "0060600000", ",": "0050300000",
    "-": "0808080808", "–": "0808080808", ":": "0036360000", ";": "0056360000", "/": "2010080402",
    "(": "001c224100", ")": "0041221c00", "+": "08083e0808", "%": "2313086462", "?": "0201510906",
    "!": "00005f0000", "'": "0005030000", "’": "0005030000", "_": "4040404040", "#": "147f147f14",
    "=": "1414141414", "·": "0018180000", "×": "2214081422", "▲": "60787e7860", "▼": "030f3f0f03",
    "≈": "2412122412", "~": "0804081008", "✓": "1020180402", "✗": "63361c3663", "★": "643c1f3c64",
    "&": "3649552250", '"': "0007000700", "…": "4000400040", "[": "007f414100", "]": "0041417f00",
}  # fmt: skip
"""Five columns of dots in hexadecimal, the lowest bit at the top."""


def _dot(text: str, x: int, y: int) -> bool:
    number, column = divmod(x, DOTS_WIDE + 1)
    if column == DOTS_WIDE or number >= len(text) or not 0 <= y < DOTS_HIGH:
        return False
    glyph = _GLYPHS.get(text[number]) or _GLYPHS.get(text[number].upper()) or _GLYPHS["?"]
    return bool(int(glyph[2 * column : 2 * column + 2], 16) >> y & 1)


def _narrow(text: str) -> list[str]:
    """Draws 2 x 2 dots in a cell."""
    width = (len(text) * (DOTS_WIDE + 1) + 1) // 2
    return [
        "".join(
            _BLOCKS[sum(_dot(text, 2 * x + dx, 2 * y + dy) << (2 * dy + dx) for dy in (0, 1) for dx in (0, 1))]
            for x in range(width)
        )
        for y in range(4)
    ]


def _regular(text: str) -> list[str]:
    """Draws 1 x 2 dots in a cell, so that dots are square."""
    halves = " ▀▄█"
    width = len(text) * (DOTS_WIDE + 1)
    return [
        "".join(halves[_dot(text, x, 2 * y) + 2 * _dot(text, x, 2 * y + 1)] for x in range(width)) for y in range(4)
    ]


def _large(text: str) -> list[str]:
    """Draws a dot in two cells."""
    width = len(text) * (DOTS_WIDE + 1)
    return ["".join("██" if _dot(text, x, y) else "  " for x in range(width)) for y in range(DOTS_HIGH)]


_FACES: tuple[tuple[int, int, Callable[[str], list[str]]], ...] = ((12, 7, _large), (6, 4, _regular), (3, 4, _narrow))
"""Largest first: columns of a character (with the gap behind it), its rows, and the function that draws it."""


def big_type(text: str, columns: int, rows: int) -> list[str]:
    """Returns the text in the largest type that fits into the cells, broken between words if necessary.

    Text that fits in no size of big type is returned as plain lines; lines beyond the last row are left out.
    """
    for wide, high, draw in _FACES:
        lines = _broken(text, columns // wide)
        height = len(lines) * high
        if lines and height <= rows:
            gap = [""] if height + len(lines) - 1 <= rows else []
            drawn = [row for line in lines for row in [*gap, *draw(line)]]
            return drawn[len(gap) :]
    return (_broken(text, columns) or [text[:columns]])[: max(1, rows)]


def _broken(text: str, most: int) -> list[str]:
    """Returns lines of at most `most` characters; none if a word is longer."""
    lines: list[str] = []
    for word in text.split():
        if len(word) > most:
            return []
        if lines and len(lines[-1]) + 1 + len(word) <= most:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
