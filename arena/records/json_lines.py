"""Follows journals while other processes write them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

STEP_BYTES = 4 << 20


class GrowingFile:
    """Reads the lines of a file that grows. A line that is not complete yet is held back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = 0
        self._rest = b""

    def lines(self) -> Iterator[bytes]:
        """Yields the lines that were added since the last call; none if the file is gone. Blocks for milliseconds."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._at)
                data = file.read(STEP_BYTES)
        except OSError:
            return
        self._at += len(data)
        *whole, self._rest = (self._rest + data).split(b"\n")
        yield from whole


def newest_journal(folder: Path) -> Path | None:
    """Returns the newest journal (names of journals sort by time); None if there is none."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.name.endswith(".jsonl")]
    except OSError:
        return None
    return folder / max(names) if names else None
