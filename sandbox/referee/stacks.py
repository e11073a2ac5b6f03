"""Stacks of ranks that did not answer.

What a rank prints is not trusted: a forged stack can only name another line in the verdict of its own kernel.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

_SECTION = re.compile(r"^(?:Current thread|Thread) .*\(most recent call first\):$", re.MULTILINE)
_FRAME = re.compile(r'^  File "([^"\n]{1,500})", line (\d{1,7}) in ([^\n]{1,200})$', re.MULTILINE)
TELLS_EXITS = "/sandbox/rank/rank.py"
"""Of a rank that ended itself, the innermost frame: the function that says where it was called."""
_WAITS = ("/torch/", "/sandbox/kit/")
"""A rank whose innermost frame lies in one of these waits in a call of the library; another one computes, or loops."""


@dataclass(frozen=True)
class StackPlace:
    """Where a rank is."""

    rank: int
    line: int
    """In the kernel file, 1-based."""
    waits: bool
    """In a call to torch or to the kit, rather than in the kernel's own code."""
    stack: str = field(default="", compare=False)
    """The calls down to that of the kernel's text, innermost first, and what they stand on."""

    def __str__(self) -> str:
        return f"rank {self.rank} {'waits' if self.waits else 'is'} at line {self.line}"


def place_of(rank: int, printed: str, kernel_name: str, lines: int) -> StackPlace | None:
    """The place that the last stack in `printed` tells; None where it tells none.

    kernel_name: the kernel's file; lines: how many it has.
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
    """Where the ranks that did not finish are: a place each, or one that is the same for all of them."""
    same = {(place.line, place.waits) for place in places}
    if len(same) == 1 and len(places) == len(ranks) > 1:
        return f"{'both' if len(ranks) == 2 else 'all'} {'wait' if places[0].waits else 'are'} at line {places[0].line}"
    return ", ".join(map(str, places))


def blocked_rank(places: list[StackPlace]) -> StackPlace | None:
    """The rank that holds up the others: one that waits for nobody, else the first."""
    return next((place for place in places if not place.waits), places[0] if places else None)
