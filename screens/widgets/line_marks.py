"""Marks on lines of a text: where a run failed. They stay with their lines while the text is edited."""

from collections.abc import Mapping, Sequence

NEAR = 40
"""Lines that a marked line is looked for in, above and below, after an edit."""


class LineMarks:
    """Line numbers (from 0) with words."""

    def __init__(self) -> None:
        self.words: dict[int, str] = {}
        self._marked: list[tuple[int, str, str]] = []
        """Of every mark where its line was last, that line's text, and the words; of those too whose line is changed now."""

    def set(self, words: Mapping[int, str], lines: Sequence[str]) -> None:
        """Marks other lines. A number beyond the end of the text marks its last line."""
        last = max(len(lines) - 1, 0)
        self.words = {min(max(row, 0), last): said for row, said in words.items()}
        self._marked = [(row, lines[row], said) for row, said in self.words.items() if row < len(lines)]

    def follow(self, lines: Sequence[str]) -> None:
        """The text was edited: a mark goes where its line went, and is off while the line is not as it was."""
        shown: dict[int, str] = {}
        for number, (row, text, words) in enumerate(self._marked):
            near = sorted(
                range(max(0, row - NEAR), min(len(lines), row + NEAR + 1)), key=lambda at: abs(at - row)
            )
            found = next((at for at in near if lines[at] == text), None)
            if found is not None:
                shown[found] = words
                self._marked[number] = (found, text, words)
        self.words = shown
