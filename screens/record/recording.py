"""A recording: the rows of a screen over time. Equal rows are stored once."""

from dataclasses import dataclass, field

from rich.segment import Segment
from textual.strip import Strip

from arena.records.report import one_line
from arena.words.untrusted_text import printable

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
