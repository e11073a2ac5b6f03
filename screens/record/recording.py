"""A recording: the rows of a screen over time, as an asciicast and as an animated SVG. Equal rows are stored once.

The SVG has no script and no font from elsewhere; a viewer that cannot animate shows the last picture. Every row is drawn once
for each thing that it shows, and is visible for as long as that stands there (SMIL, which browsers play in an `<img>`, too).
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.sax.saxutils import escape, quoteattr

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from arena.words.untrusted_text import one_line, printable

Row = tuple[Segment, ...]


@dataclass
class Recording:
    """Frames in order. `add` leaves out what changes nothing."""

    columns: int
    lines: int
    title: str
    frames: list[tuple[float, tuple[Row, ...]]] = field(default_factory=list)
    """The rows of the screen from one second of the recording on."""
    length: float = 0.0
    """Seconds, the last frame's stand among them."""

    def __post_init__(self) -> None:
        self.title = one_line(self.title)

    def add(self, at: float, strips: list[Strip]) -> None:
        """What stands there from `at` on."""
        rows = tuple(tuple(map(_clean, strip.simplify())) for strip in strips)
        self.length = max(self.length, at)
        if not self.frames or rows != self.frames[-1][1]:
            self.frames.append((at, rows))

    def row_spans(self, y: int) -> list[tuple[float, float, Row]]:
        """What row `y` shows: (from, until, row), one after another."""
        spans: list[tuple[float, float, Row]] = []
        for at, rows in self.frames:
            row = rows[y]
            if spans and spans[-1][2] == row:
                continue
            if spans:
                spans[-1] = (spans[-1][0], at, spans[-1][2])
            spans.append((at, self.length, row))
        return spans


def _clean(segment: Segment) -> Segment:
    """What a kernel's text shows there must draw nothing else in a file of others."""
    return Segment(printable(segment.text).replace("\n", " "), segment.style)


_HIDE_CURSOR, _CLEAR, _RESET = "\x1b[?25l", "\x1b[2J", "\x1b[0m"


def asciicast(recording: Recording, created: float) -> Iterator[str]:
    """Its lines: a header, then an event for every change, which draws the rows that differ. created: seconds since the epoch."""
    yield json.dumps(
        {
            "version": 2,
            "width": recording.columns,
            "height": recording.lines,
            "timestamp": int(created),
            "duration": round(recording.length, 3),
            "title": recording.title,
            "env": {"TERM": "xterm-256color"},
        },
        ensure_ascii=False,
    )
    shown: tuple[Row | None, ...] = (None,) * recording.lines
    start = _HIDE_CURSOR + _CLEAR
    for at, rows in recording.frames:
        changed = [y for y, row in enumerate(rows) if row != shown[y]]
        text = start + "".join(f"\x1b[{y + 1};1H{ansi(rows[y])}" for y in changed)
        yield json.dumps([round(at, 3), "o", text], ensure_ascii=False)
        shown, start = rows, ""
    # The last picture stands for a while: players end with the last event.
    yield json.dumps([round(recording.length, 3), "o", _RESET], ensure_ascii=False)


def ansi(row: Row) -> str:
    """A row in colours of 24 bits."""
    styled = ((segment.style or Style.null(), segment.text) for segment in row)
    return "".join(style.render(text, color_system=ColorSystem.TRUECOLOR) for style, text in styled)


CELL_WIDTH, CELL_HEIGHT, FONT = 8.4, 18.0, 14
MARGIN, BAR = 10.0, 30.0
_FACES = "ui-monospace, 'Cascadia Mono', 'JetBrains Mono', 'DejaVu Sans Mono', Menlo, Consolas, monospace"
_KEPT_TIME = 4
"""Decimals of a time."""
_LOOKS = {
    "bold": 'font-weight="bold"',
    "italic": 'font-style="italic"',
    "dim": 'opacity="0.6"',
    "underline": 'text-decoration="underline"',
    "strike": 'text-decoration="line-through"',
}
"""Attributes of a text, by those of its style."""


def animated_svg(recording: Recording, foreground: str, background: str) -> str:
    """foreground, background: the theme's colours, "#rrggbb"."""
    width = recording.columns * CELL_WIDTH + 2 * MARGIN
    height = recording.lines * CELL_HEIGHT + 2 * MARGIN + BAR
    rows = [line for y in range(recording.lines) for line in _row(recording, y, foreground, background)]
    title = escape(recording.title)
    head = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.1f} {height:.1f}" role="img" '
            f"aria-label={quoteattr(recording.title)}>"
        ),
        f"<title>{title}</title>",
        f"<style>text {{ font-family: {_FACES}; font-size: {FONT}px; white-space: pre; }}</style>",
        f'<rect width="100%" height="100%" rx="8" fill="{background}"/>',
        *(
            f'<circle cx="{MARGIN + 8 + 18 * number:.0f}" cy="16" r="5.5" fill="{colour}"/>'
            for number, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
        ),
        f'<text x="{width / 2:.1f}" y="20" text-anchor="middle" fill="{foreground}" opacity="0.7">{title}</text>',
    ]
    return "\n".join([*head, *rows, "</svg>"]) + "\n"


def _colours(style: Style, foreground: str, background: str) -> tuple[str, str]:
    """Returns (colour of the text, colour behind it)."""
    front, back = (
        usual if colour is None or colour.is_default else colour.get_truecolor().hex
        for colour, usual in ((style.color, foreground), (style.bgcolor, background))
    )
    return (back, front) if style.reverse else (front, back)


def _row(recording: Recording, y: int, foreground: str, background: str) -> Iterator[str]:
    spans = recording.row_spans(y)
    by_row: dict[Row, list[tuple[float, float]]] = {}
    for start, end, row in spans:
        by_row.setdefault(row, []).append((start, end))
    top = MARGIN + BAR + y * CELL_HEIGHT
    for row, times in by_row.items():
        drawn = "".join(_segments(row, top, foreground, background))
        if not drawn:
            continue
        if len(by_row) == 1:
            yield drawn
            continue
        last = times[-1][1] >= recording.length
        yield f'<g visibility="{"visible" if last else "hidden"}">{_animation(times, recording.length)}{drawn}</g>'


def _animation(times: list[tuple[float, float]], length: float) -> str:
    """Visible in these spans, in a loop."""
    values, places = [], []
    if times[0][0] > 0.0:
        values.append("hidden")
        places.append(0.0)
    for start, end in times:
        values.append("visible")
        places.append(start / length)
        if end < length:
            values.append("hidden")
            places.append(end / length)
    return (
        f'<animate attributeName="visibility" calcMode="discrete" values="{";".join(values)}" '
        f'keyTimes="{";".join(f"{place:.{_KEPT_TIME}f}" for place in places)}" dur="{length:.2f}s" repeatCount="indefinite"/>'
    )


def _segments(row: Row, top: float, foreground: str, background: str) -> Iterator[str]:
    column = 0
    for segment in row:
        style = segment.style or Style.null()
        cells = cell_len(segment.text)
        left, width = MARGIN + column * CELL_WIDTH, cells * CELL_WIDTH
        front, back = _colours(style, foreground, background)
        if back != background:
            yield f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{CELL_HEIGHT + 0.2:.1f}" fill="{back}"/>'
        column += cells
        text = segment.text.rstrip()
        shown = text.lstrip()
        if not shown:
            continue
        before = cell_len(text) - cell_len(shown)
        x = left + before * CELL_WIDTH
        looks = "".join(f" {look}" for name, look in _LOOKS.items() if getattr(style, name))
        yield (
            f'<text x="{x:.1f}" y="{top + 13.4:.1f}" fill="{front}"{looks} xml:space="preserve" '
            f'textLength="{cell_len(shown) * CELL_WIDTH:.1f}" lengthAdjust="spacingAndGlyphs">{escape(shown)}</text>'
        )
