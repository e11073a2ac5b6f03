"""Reads the printed stacks of ranks that did not answer in time.

The prints are untrusted. A forged stack can only change the line in the verdict of its own kernel.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

_SECTION = re.compile(r"^(?:Current thread|Thread) .*\(most recent call first\):$", re.MULTILINE)
_FRAME = re.compile(r'^  File "([^"\n]{1,500})", line (\d{1,7}) in ([^\n]{1,200})$', re.MULTILINE)
TELLS_EXITS = "/sandbox/rank/rank.py"
"""File of the innermost frame of a rank that ended itself: the function there prints where it was called."""
_WAITS = ("/torch/", "/sandbox/kit/")
"""A rank whose innermost frame is in one of these folders waits in a library call."""


@dataclass(frozen=True)
class StackPlace:
    """The place in the kernel where a rank is."""

    rank: int
    line: int
    """Line of the kernel file, 1-based."""
    waits: bool
    """Whether it is in a call to torch or the kit."""
    stack: str = field(default="", compare=False)
    """The calls down to the first one of the kernel file, innermost first."""

    def __str__(self) -> str:
        return f"rank {self.rank} {'waits' if self.waits else 'is'} at line {self.line}"


def place_of(rank: int, printed: str, kernel_name: str, lines: int) -> StackPlace | None:
    """The place in the last stack of `printed`; None if there is none.

    kernel_name: the kernel's file; lines: its number of lines.
    """
    last = printed.rfind("Current thread ")
    if last < 0:
        return None
    sections = _SECTION.split(printed[last:])
    frames = _FRAME.findall(sections[1]) if len(sections) > 1 else []
    if frames and frames[0][0].endswith(TELLS_EXITS):
        del frames[0]
    name = PurePosixPath(kernel_name).name
    own = [
        at
        for at, (path, number, _) in enumerate(frames)
        if PurePosixPath(path).name == name and 0 < int(number) <= lines
    ]
    if not own:
        return None
    waits = any(part in frames[0][0] for part in _WAITS)
    return StackPlace(rank, int(frames[own[0]][1]), waits, _folded(frames, own[-1], name))


def _folded(frames: Sequence[tuple[str, str, str]], last: int, name: str) -> str:
    """A stack without the frames of the harness, which lie below the kernel's own."""
    shown = [
        f'  File "{name if PurePosixPath(path).name == name else path}", line {number}, in {function}'
        for path, number, function in frames[: last + 1]
    ]
    below = len(frames) - last - 1
    folded = [f"  ({below} more of the harness)"] if below else []
    return "\n".join(["Stack (most recent call first):", *shown, *folded])


def places_words(places: list[StackPlace], ranks: Sequence[int]) -> str:
    """The places of blocked ranks in words; one place if it is the same for all."""
    same = {(place.line, place.waits) for place in places}
    if len(same) == 1 and len(places) == len(ranks) > 1:
        return f"{'both' if len(ranks) == 2 else 'all'} {'wait' if places[0].waits else 'are'} at line {places[0].line}"
    return ", ".join(map(str, places))


def blocked_rank(places: list[StackPlace]) -> StackPlace | None:
    """The rank that probably blocks the others: one that does not wait, else the first."""
    return next((place for place in places if not place.waits), places[0] if places else None)
