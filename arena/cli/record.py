"""`pkb-arena replay --record`: the options of recordings, files that play without pkb-arena."""

import re
from dataclasses import dataclass
from pathlib import Path

from arena.duel.events import DuelHeader
from arena.errors import UsageError
from arena.paths import require_writable
from arena.records.header import RunHeader
from arena.settings import Settings

KINDS = (".cast", ".svg")
SMALLEST, LARGEST = (60, 20), (240, 80)


@dataclass(frozen=True)
class RecordPlan:
    """The run or duel to record, and how to record it."""

    journal: Path
    header: RunHeader | DuelHeader
    target: Path
    """Its suffix is one of KINDS."""
    size: tuple[int, int]
    """Columns and lines."""
    speed: float
    theme: str
    """Empty: the theme of the settings."""
    settings: Settings


def check_target(path: Path) -> Path:
    """Checks the path of a recording and returns it.

    Raises:
        UsageError: its suffix is not one of KINDS.
        FolderUnwritable: its folder is not writable.
    """
    if path.suffix.lower() not in KINDS:
        raise UsageError(
            f"{path} is no kind of recording", "name a file.cast (asciicast) or a file.svg (animated picture)"
        )
    require_writable(path)
    return path


def parse_size(text: str) -> tuple[int, int]:
    """Parses a recording's size: (100, 30) for "100x30".

    Raises:
        UsageError: it is not two numbers, or out of bounds.
    """
    found = re.fullmatch(r"(\d+)x(\d+)", text.lower())
    size = (int(found[1]), int(found[2])) if found else (0, 0)
    if not (SMALLEST[0] <= size[0] <= LARGEST[0] and SMALLEST[1] <= size[1] <= LARGEST[1]):
        raise UsageError(f"{text!r} is no size of a recording", "COLUMNSxLINES from 60x20 to 240x80, as 100x30")
    return size
