"""A recording as an animated SVG: no script, no font from elsewhere; a viewer that cannot animate shows the last picture.

Every row is drawn once for each thing that it shows, and is visible for as long as that stands there (SMIL, which browsers
play in an `<img>`, too). Colours are classes of one stylesheet.
"""

from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from rich.cells import cell_len
from rich.style import Style

from screens.record.recording import Recording, Row

CELL_WIDTH, CELL_HEIGHT, FONT = 8.4, 18.0, 14
MARGIN, BAR = 10.0, 30.0
_FACES = "ui-monospace, 'Cascadia Mono', 'JetBrains Mono', 'DejaVu Sans Mono', Menlo, Consolas, monospace"
_KEPT_TIME = 4


def animated_svg(recording: Recording, foreground: str, background: str) -> str:
    """foreground, background: the theme's colours, "#rrggbb"."""
    width = recording.columns * CELL_WIDTH + 2 * MARGIN
    height = recording.lines * CELL_HEIGHT + 2 * MARGIN + BAR
    classes = _Classes(foreground, background)
    rows = [line for y in range(recording.lines) for line in _row(recording, y, classes)]
    title = escape(recording.title)
    head = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.1f} {height:.1f}" role="img" '
            f"aria-label={quoteattr(recording.title)}>"
        ),
        f"<title>{title}</title>",
        "<style>",
        f"text {{ font-family: {_FACES}; font-size: {FONT}px; white-space: pre; }}",
        *classes.rules(),
        "</style>",
        f'<rect width="100%" height="100%" rx="8" fill="{background}"/>',
        *(
            f'<circle cx="{MARGIN + 8 + 18 * number:.0f}" cy="16" r="5.5" fill="{colour}"/>'
            for number, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
        ),
        f'<text x="{width / 2:.1f}" y="20" text-anchor="middle" fill="{foreground}" opacity="0.7">{title}</text>',
    ]
    return "\n".join([*head, *rows, "</svg>"]) + "\n"


class _Classes:
    """Colours and weights of texts, and colours behind them, each with a short class."""

    def __init__(self, foreground: str, background: str) -> None:
        self.foreground, self.background = foreground, background
        self._texts: dict[str, str] = {}
        self._backs: dict[str, str] = {}

    def text(self, style: Style) -> str:
        rule = f"fill: {self.colours(style)[0]};"
        for on, words in (
            (style.bold, "font-weight: bold;"),
            (style.italic, "font-style: italic;"),
            (style.dim, "opacity: 0.6;"),
            (style.underline, "text-decoration: underline;"),
            (style.strike, "text-decoration: line-through;"),
        ):
            rule += f" {words}" if on else ""
        return self._texts.setdefault(rule, f"t{len(self._texts)}")

    def back(self, style: Style) -> str:
        colour = self.colours(style)[1]
        if colour == self.background:
            return ""
        return self._backs.setdefault(f"fill: {colour};", f"b{len(self._backs)}")

    def colours(self, style: Style) -> tuple[str, str]:
        front = _hex(style.color.get_truecolor()) if style.color and not style.color.is_default else self.foreground
        back = (
            _hex(style.bgcolor.get_truecolor(foreground=False))
            if style.bgcolor and not style.bgcolor.is_default
            else self.background
        )
        return (back, front) if style.reverse else (front, back)

    def rules(self) -> Iterator[str]:
        for rule, name in (*self._texts.items(), *self._backs.items()):
            yield f".{name} {{ {rule} }}"


def _hex(triplet: tuple[int, int, int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*triplet)


def _row(recording: Recording, y: int, classes: _Classes) -> Iterator[str]:
    spans = recording.row_spans(y)
    by_row: dict[Row, list[tuple[float, float]]] = {}
    for start, end, row in spans:
        by_row.setdefault(row, []).append((start, end))
    top = MARGIN + BAR + y * CELL_HEIGHT
    for row, times in by_row.items():
        drawn = "".join(_segments(row, top, classes))
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


def _segments(row: Row, top: float, classes: _Classes) -> Iterator[str]:
    column = 0
    for segment in row:
        style = segment.style or Style.null()
        cells = cell_len(segment.text)
        left, width = MARGIN + column * CELL_WIDTH, cells * CELL_WIDTH
        if back := classes.back(style):
            yield f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{CELL_HEIGHT + 0.2:.1f}" class="{back}"/>'
        column += cells
        text = segment.text.rstrip()
        shown = text.lstrip()
        if not shown:
            continue
        before = cell_len(text) - cell_len(shown)
        x = left + before * CELL_WIDTH
        yield (
            f'<text x="{x:.1f}" y="{top + 13.4:.1f}" class="{classes.text(style)}" xml:space="preserve" '
            f'textLength="{cell_len(shown) * CELL_WIDTH:.1f}" lengthAdjust="spacingAndGlyphs">{escape(shown)}</text>'
        )
