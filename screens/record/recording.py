"""A recording: the rows of a screen over time. Equal rows are stored once."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.color import Color, ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from arena.words.untrusted_text import one_line, printable

Row = tuple[Segment, ...]


@dataclass(frozen=True)
class RecordedFrame:
    """The screen from one moment on."""

    at: float
    """Seconds since the recording began."""
    rows: tuple[Row, ...]


@dataclass
class Recording:
    """Frames in order. `add` leaves out what changes nothing."""

    columns: int
    lines: int
    title: str
    frames: list[RecordedFrame] = field(default_factory=list)
    length: float = 0.0
    """Seconds, the last frame's stand among them."""

    def __post_init__(self) -> None:
        self.title = one_line(self.title)

    def add(self, at: float, strips: list[Strip]) -> None:
        """What stands there from `at` on."""
        rows = tuple(tuple(map(_clean, strip.simplify())) for strip in strips)
        self.length = max(self.length, at)
        if not self.frames or rows != self.frames[-1].rows:
            self.frames.append(RecordedFrame(at, rows))

    def row_spans(self, y: int) -> list[tuple[float, float, Row]]:
        """What row `y` shows: (from, until, row), one after another."""
        spans: list[tuple[float, float, Row]] = []
        for frame in self.frames:
            row = frame.rows[y]
            if spans and spans[-1][2] == row:
                continue
            if spans:
                spans[-1] = (spans[-1][0], frame.at, spans[-1][2])
            spans.append((frame.at, self.length, row))
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
    for frame in recording.frames:
        changed = [y for y, row in enumerate(frame.rows) if row != shown[y]]
        text = start + "".join(f"\x1b[{y + 1};1H{ansi(frame.rows[y])}" for y in changed)
        yield json.dumps([round(frame.at, 3), "o", text], ensure_ascii=False)
        shown, start = frame.rows, ""
    # The last picture stands for a while: players end with the last event.
    yield json.dumps([round(recording.length, 3), "o", _RESET], ensure_ascii=False)


def ansi(row: Row) -> str:
    """A row in colours of 24 bits."""
    return "".join(_segment(segment) for segment in row) + _RESET


def _segment(segment: Segment) -> str:
    style = segment.style or Style.null()
    codes = ["0"]
    weights = (
        (style.bold, "1"),
        (style.dim, "2"),
        (style.italic, "3"),
        (style.underline, "4"),
        (style.reverse, "7"),
        (style.strike, "9"),
    )
    for on, code in weights:
        if on:
            codes.append(code)
    for colour, foreground in ((style.color, True), (style.bgcolor, False)):
        if colour is not None and not colour.is_default:
            codes += _exact(colour).get_ansi_codes(foreground)
    return f"\x1b[{';'.join(codes)}m{segment.text}"


def _exact(colour: Color) -> Color:
    return Color.from_triplet(colour.get_truecolor()) if colour.type.value > ColorSystem.STANDARD else colour
