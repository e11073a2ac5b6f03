"""Stacks of ranks that did not answer.

What a rank prints is not trusted: a forged stack can only name another line in the verdict of its own kernel.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

_SECTION = re.compile(r"^(?:Current thread|Thread) .*\(most recent call first\):$", re.MULTILINE)
_FRAME = re.compile(r'^  File "([^"\n]{1,500})", line (\d{1,7}) in ', re.MULTILINE)
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
    for path, number in frames:
        if PurePosixPath(path).name == PurePosixPath(kernel_name).name and 0 < int(number) <= lines:
            return StackPlace(rank, int(number), any(part in frames[0][0] for part in _WAITS))
    return None


def places_words(places: list[StackPlace], ranks: Sequence[int]) -> str:
    """Where the ranks that did not finish are: a place each, or one that is the same for all of them."""
    same = {(place.line, place.waits) for place in places}
    if len(same) == 1 and len(places) == len(ranks) > 1:
        return f"{'both' if len(ranks) == 2 else 'all'} {'wait' if places[0].waits else 'are'} at line {places[0].line}"
    return ", ".join(map(str, places))


def blocked_rank(places: list[StackPlace]) -> StackPlace | None:
    """The rank that holds up the others: one that waits for nobody, else the first."""
    return next((place for place in places if not place.waits), places[0] if places else None)
