"""Tables as text: columns, a header, and a line for each row."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Generic, TypeVar

Row = TypeVar("Row")


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Returns a table as lines of Markdown."""
    head, *lines = ("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (headings, *rows))
    return [head, "|---" * len(headings) + "|", *lines]


@dataclass(frozen=True)
class Column(Generic[Row]):
    """One column. `cell` is its text in a row."""

    heading: str
    cell: Callable[[Row], str]
    width: int = 0
    """Least width in characters."""
    right: bool = False


@dataclass(frozen=True)
class TextTable(Generic[Row]):
    """Columns side by side. `header` and `line` use the least widths, so that each row can be printed at once."""

    columns: tuple[Column[Row], ...]

    @property
    def header(self) -> str:
        """The headings."""
        return self._join([column.heading for column in self.columns], self._widths)

    def line(self, row: Row) -> str:
        return self._join(self._cells(row), self._widths)

    def lines(self, rows: Sequence[Row]) -> list[str]:
        """The header and all rows, with columns as wide as their longest cell. A column without a value is left out."""
        if rows and not all(shown := [any(map(column.cell, rows)) for column in self.columns]):
            return TextTable(tuple(compress(self.columns, shown))).lines(rows)
        table = [[column.heading for column in self.columns], *map(self._cells, rows)]
        longest = [max(map(len, cells)) for cells in zip(*table, strict=True)]
        widths = [max(pair) for pair in zip(longest, self._widths, strict=True)]
        return [self._join(cells, widths) for cells in table]

    @property
    def _widths(self) -> list[int]:
        return [column.width for column in self.columns]

    def _cells(self, row: Row) -> list[str]:
        return [column.cell(row) for column in self.columns]

    def _join(self, cells: Sequence[str], widths: Sequence[int]) -> str:
        parts = [
            cell.rjust(width) if column.right else cell.ljust(width)
            for column, cell, width in zip(self.columns, cells, widths, strict=True)
        ]
        return "  ".join(parts).rstrip()
