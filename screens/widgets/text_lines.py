"""Lines of a text: edits of whole lines (indentation, comment signs), widths, and marks that stay with their lines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from arena.foreign_text import masked


def indented(lines: Sequence[str], width: int) -> list[str]:
    """One level deeper; blank lines stay as they are."""
    return [" " * width + line if line.strip() else line for line in lines]


def dedented(lines: Sequence[str], width: int) -> list[str]:
    """One level less deep, as far as a line is indented at all."""
    found = []
    for line in lines:
        blanks = len(line) - len(line.lstrip(" "))
        found.append(line[1:] if line.startswith("\t") else line[min(blanks, width) :])
    return found


def comment_toggled(lines: Sequence[str], sign: str) -> list[str]:
    """Comments without their sign, if all lines are comments; else every line that is not blank as a comment.

    The signs stand in one column, that of the least indented line.
    """
    full = [line for line in lines if line.strip()]
    if full and all(line.lstrip().startswith(sign) for line in full):
        return [_uncommented(line, sign) for line in lines]
    column = min((len(line) - len(line.lstrip()) for line in full), default=0)
    return [f"{line[:column]}{sign} {line[column:]}" if line.strip() else line for line in lines]


def _uncommented(line: str, sign: str) -> str:
    before, found, after = line.partition(sign)
    return before + after.removeprefix(" ") if found else line


def cells_of_masks(lines: Sequence[str]) -> int:
    """Most cells that `masked` adds to a line: a control character has none, its sign has one."""
    text = "\n".join(lines)
    return max(cell_len(masked(line)) - cell_len(line) for line in lines) if masked(text) != text else 0


NEAR = 40
"""Lines that a marked line is looked for in, above and below, after an edit."""


@dataclass
class _Mark:
    """A marked line, also while its text is another one."""

    origin: int
    """Its number when it was marked."""
    row: int
    """Where it was last."""
    text: str
    words: str


class LineMarks:
    """Line numbers (from 0) with words."""

    def __init__(self) -> None:
        self.words: dict[int, str] = {}
        self._marks: list[_Mark] = []

    def set(self, words: Mapping[int, str], lines: Sequence[str]) -> None:
        """Marks other lines. A number beyond the end of the text marks its last line."""
        last = max(len(lines) - 1, 0)
        self.words = {min(max(row, 0), last): said for row, said in words.items()}
        self._marks = [_Mark(row, row, lines[row], said) for row, said in self.words.items() if row < len(lines)]

    def follow(self, lines: Sequence[str]) -> None:
        """The text was edited: a mark goes where its line went, and is off while the line is not as it was."""
        shown: dict[int, str] = {}
        for mark in self._marks:
            rows = range(max(0, mark.row - NEAR), min(len(lines), mark.row + NEAR + 1))
            same = [row for row in rows if lines[row] == mark.text]
            found = min(same, key=lambda row: abs(row - mark.row), default=None)
            if found is not None:
                mark.row = found
                shown[found] = mark.words
        self.words = shown

    def now_at(self, origin: int) -> int:
        """Where the line is now that was marked as `origin`; `origin` itself where that was not marked."""
        return next((mark.row for mark in self._marks if mark.origin == origin), origin)
