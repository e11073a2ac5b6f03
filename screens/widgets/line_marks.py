"""Marks on lines of a text: where a run failed. They stay with their lines while the text is edited."""

from collections.abc import Mapping, Sequence

NEAR = 40
"""Lines that a marked line is looked for in, above and below, after an edit."""


class LineMarks:
    """Line numbers (from 0) with words."""

    def __init__(self) -> None:
        self.words: dict[int, str] = {}
        self._texts: dict[int, str] = {}

    def set(self, words: Mapping[int, str], lines: Sequence[str]) -> None:
        """Marks other lines. A number beyond the end of the text marks its last line."""
        last = max(len(lines) - 1, 0)
        self.words = {min(max(row, 0), last): said for row, said in words.items()}
        self._texts = {row: lines[row] for row in self.words if row < len(lines)}

    def follow(self, lines: Sequence[str]) -> None:
        """The text was edited: a mark goes where its line went, and off when the line is no longer as it was."""
        moved: dict[int, str] = {}
        for row, words in self.words.items():
            text = self._texts.get(row)
            near = sorted(
                range(max(0, row - NEAR), min(len(lines), row + NEAR + 1)), key=lambda at: abs(at - row)
            )
            found = next((at for at in near if lines[at] == text), None)
            if found is not None:
                moved[found] = words
        if moved != self.words:
            self.words = moved
            self._texts = {row: lines[row] for row in moved}
