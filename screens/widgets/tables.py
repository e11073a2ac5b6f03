"""What screens with a table share: the table with colours of the theme, its title column, the filter above it."""

from collections.abc import Iterable, Sequence
from typing import ClassVar, TypeVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.coordinate import Coordinate
from textual.widgets import DataTable, Input

from problems.specification import Problem
from screens.app_protocol import if_there
from screens.figures import cut

T = TypeVar("T")
Figure = tuple[str, str]
"""The words of a cell, and the name of their theme colour; a Rich style may precede it: "strike muted"."""
PLAIN = "foreground"
ID_COLUMNS, LEAST_TITLE, MOST_TITLE = 3, 14, 110
"""Width of a problem's id, and minimum and maximum width of its title, in columns."""


def room_beside(width: int, columns: Iterable[int]) -> int:
    """Returns the cells that columns of these widths leave for one more. The scrollbar takes one cell."""
    return width - 1 - sum(each + 2 for each in columns) - 2  # each column has an empty cell on both sides


DataTable._on_click = if_there(DataTable._on_click)  # type: ignore[method-assign]


class FigureTable(DataTable[Text]):
    """A table whose cells have colours of the theme, and whose columns have their widths from the start.

    Textual paints cells as Rich texts, whose colours do not follow a change of the theme. It would measure a column only
    when the table is idle, and cells painted before would keep the old width.
    """

    def __init__(self, *, id: str | None = None, by_cell: bool = False) -> None:
        super().__init__(id=id, cursor_type="cell" if by_cell else "row", zebra_stripes=False)
        self._heads: list[tuple[str, str, int | None]] = []
        self._figures: list[list[Figure]] = []

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self.call_after_refresh(self._draw))

    def fill(
        self,
        heads: Sequence[str],
        rows: list[list[Figure]],
        widths: Sequence[int | None] = (),
        names: Sequence[str] = (),
    ) -> None:
        """Replaces all columns and rows if any differs; the cursor keeps its place.

        widths: those of the first columns; None or missing: as wide as its words. names: keys of the columns.
        """
        more = [None] * len(heads)
        columns = list(zip(names or map(str, range(len(heads))), heads, [*widths, *more], strict=False))
        if (columns, rows) != (self._heads, self._figures):
            self._heads, self._figures = columns, rows
            self._draw()

    def fill_problems(
        self, problems: Sequence[Problem], heads: Sequence[str], cells: list[list[Figure]], least: int = 0
    ) -> None:
        """Shows a row for each problem: its id, its title in the room that its other cells leave, and these cells.

        heads, cells: of the other columns. least: the minimum width of each of them.
        """
        drawn = [[len(row[column][0]) for row in cells] for column in range(len(heads))]
        widths = [max(len(head), least, *lengths, 0) for head, lengths in zip(heads, drawn, strict=True)]
        room = min(room_beside(self.size.width, [ID_COLUMNS, *widths]), MOST_TITLE)
        titles = max(LEAST_TITLE, min(room, max((len(each.title) for each in problems), default=0)))
        named = [[(f"{each.id:>3}", "muted"), (cut(each.title, titles), PLAIN)] for each in problems]
        self.fixed_columns = 2
        rows = [name + row for name, row in zip(named, cells, strict=True)]
        self.fill(["id", "problem", *heads], rows, [ID_COLUMNS, titles, *widths])

    def put(self, row: int, column: int, figure: Figure) -> None:
        """Replaces one cell."""
        if self._figures[row][column] != figure:
            self._figures[row][column] = figure
            self.update_cell_at(Coordinate(row, column), self._text(figure))

    def under_cursor(self, entries: Sequence[T]) -> T | None:
        """Returns the entry of the row under the cursor. In a table without rows the cursor is at -1."""
        return entries[self.cursor_row] if 0 <= self.cursor_row < len(entries) else None

    def _draw(self) -> None:
        at = self.cursor_coordinate
        self.clear(columns=True)
        for number, (name, head, width) in enumerate(self._heads):
            cells = [Text(head), *(Text(row[number][0]) for row in self._figures if number < len(row))]
            self.add_column(cells[0], key=name, width=max(cell.cell_len for cell in cells) if width is None else width)
        for row in self._figures:
            self.add_row(*map(self._text, row))
        self.cursor_coordinate = at

    def _text(self, figure: Figure) -> Text:
        style, _, colour = figure[1].rpartition(" ")
        colour = self.app.theme_variables.get(colour, "").removeprefix("ansi_")
        return Text(figure[0], style=f"{style} {colour}".strip(), no_wrap=True)


def has_word(problem: Problem, word: str) -> bool:
    """Whether a word in lower case is a problem's id, or in its names, title, origin, domain, class or collectives."""
    if word.isdecimal():
        return word == str(problem.id)
    names = [problem.stem, problem.title, problem.origin, problem.domain, problem.category, *problem.also]
    return word in " ".join([*names, *problem.collectives, f"class {problem.class_} class:{problem.class_}"]).lower()


class FilterInput(Input):
    """A filter field above a list, hidden until it is opened. Down and enter move to the list, if it shows anything."""

    BINDING_GROUP_TITLE = "Filter"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("down,enter", "to_list", "to the list", show=False)]

    def __init__(self, placeholder: str, *, id: str, of: str) -> None:
        """of: the selector of the list, or of fields; the first one that is displayed gets the focus."""
        super().__init__(placeholder=placeholder, id=id, compact=True, select_on_focus=False, max_length=100)
        self._of = of
        self.display = False

    def allow_focus(self) -> bool:
        return self.display and super().allow_focus()  # Textual would focus it while a dialog reads its list

    @property
    def words(self) -> list[str]:
        """What was typed, as words in lower case."""
        return self.value.lower().split()

    def finds(self, text: str) -> bool:
        """Whether a text has all words that were typed."""
        return all(word in text.lower() for word in self.words)

    def open(self) -> None:
        """Shows the field and focuses it."""
        self.display = True
        self.focus()

    def close(self) -> bool:
        """Empties and hides the field, and focuses the list; returns False if it was hidden already."""
        was_open, self.display, self.value = self.display, False, ""
        if was_open:
            self.action_to_list()
        return was_open

    def action_to_list(self) -> None:
        found = [*self.screen.query(self._of)]
        shown = (each for each in found if all(node.display for node in each.ancestors_with_self))
        next(shown, self if self.display else found[0]).focus()
