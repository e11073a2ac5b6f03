"""Output of the ranks and of the compiler: bounded, wrapped, filtered by rank; enter jumps to a line of the kernel."""

from bisect import bisect_right
from collections import deque
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets.text_area import Selection

from arena.words.untrusted_text import printable
from screens.kernel.panes.run_pane import RunPane
from screens.kernel.run_update import LineJump, LogLine, RunUpdate, named_place
from screens.widgets import text_lines

LINES_KEPT = 5_000
_COLUMNS_SHOWN = 2_000
_MARK = 4
"""Cells of the rank and its rule, in front of the text."""


class LogPane(ScrollView, RunPane, can_focus=True):
    """Digits show one rank, `a` all ranks, `y` copies, enter jumps to the line that a message names."""

    DEFAULT_CSS = """
    LogPane {
        height: 1fr;
        min-height: 3;
        overflow-x: hidden;
        scrollbar-gutter: stable;
        & .log--text { color: $foreground; }
        & .log--rank { color: $muted; }
        & .log--error { color: $error; }
        & .log--note { color: $muted; }
        & .log--cursor { background: $panel; }
        & .log--match { background: $warning 40%; }
    }
    """
    NAME: ClassVar[str] = "log"
    TITLE: ClassVar[str] = "Log"
    LETTER: ClassVar[str] = "l"
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"log--{name}" for name in ("text", "rank", "error", "note", "cursor", "match")
    }
    BINDING_GROUP_TITLE = "Log"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "jump_to_line", "to the line"),
        Binding("0", "show_rank(0)", "one rank", key_display="0-7"),
        *(Binding(str(rank), f"show_rank({rank})", "one rank", show=False) for rank in range(1, 8)),
        Binding("a", "show_rank(-1)", "all ranks"),
        Binding("y", "copy", "copy"),
        Binding("end", "follow", "follow the end", show=False),
        Binding("up", "move(-1)", "line up", show=False),
        Binding("down", "move(1)", "line down", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: deque[LogLine] = deque(maxlen=LINES_KEPT)
        self._visible: list[LogLine] = []
        self._rows: list[tuple[int, int]] = []
        """The line and the column at which each row of the pane begins; a long line has several rows."""
        self.rank: int | None = None
        self.cursor: int | None = None
        """The row of the cursor; None = follow the end."""
        self.selection = Selection.cursor((0, 0))
        """The current match of a search."""
        self._pattern = text_lines.pattern_of("")

    def show(self, update: RunUpdate) -> None:
        if update.new_run:
            self.clear_log()
        if update.lines:
            self.write(update.lines)

    def on_resize(self) -> None:
        """Wraps for the new width. The cursor stays on its text; a view at the end stays at the end."""
        place = None if self.cursor is None else self._rows[self.cursor]
        self._filter()
        if place is not None:
            self.move_cursor(place)

    def clear_log(self) -> None:
        """Empties the pane for a new run."""
        self._lines.clear()
        self.cursor = None
        self._filter()

    def write(self, lines: list[LogLine]) -> None:
        """Adds lines in one go, cleaned of control characters."""
        for line in lines:
            for text in printable(line.text).rstrip("\n").split("\n"):
                self._lines.append(LogLine(text[:_COLUMNS_SHOWN], line.rank, line.kind))
        self._filter()

    def _filter(self) -> None:
        self._visible = [line for line in self._lines if self.rank is None or line.rank in (None, self.rank)]
        self._rows = [
            (number, start)
            for number, line in enumerate(self._visible)
            for start in row_starts(line.text, self._columns)
        ]
        if self.cursor is not None:  # old lines may have been dropped for new ones
            self.cursor = min(self.cursor, len(self._rows) - 1) if self._rows else None
        self.virtual_size = Size(self._columns + _MARK, len(self._rows))
        if self.cursor is None:
            # Forced: when the lines first exceed the pane, it has no scrollbar yet, and Textual would move neither.
            self.scroll_end(animate=False, immediate=True, x_axis=False, force=True)
            bar = self.vertical_scrollbar
            bar.window_virtual_size, bar.position = len(self._rows), self.scroll_y
        self.refresh()

    def render_line(self, y: int) -> Strip:
        row = self.scroll_offset.y + y
        width = self.size.width
        if row >= len(self._rows):
            if row == 0:
                hint = Segment(" No output yet.", self.get_component_rich_style("log--note"))
                return Strip([hint]).adjust_cell_length(width, self.rich_style)
            return Strip.blank(width, self.rich_style)
        number, start = self._rows[row]
        line = self._visible[number]
        below = self._rows[row + 1] if row + 1 < len(self._rows) else (number + 1, 0)
        end = below[1] if below[0] == number else len(line.text)
        style = self.get_component_rich_style(f"log--{line.kind}")
        mark = f"{line.rank:>2}│ " if line.rank is not None and not start else "  │ "
        rank = Segment(mark, self.get_component_rich_style("log--rank"))
        pieces = self._pieces(line.text[start:end][: self._columns], style)
        strip = Strip([rank, *pieces]).adjust_cell_length(width, self.rich_style)
        if row == self.cursor and (self.has_focus or self._pattern is not None):
            strip = strip.apply_style(self.get_component_rich_style("log--cursor", partial=True))
        return strip

    def _pieces(self, text: str, style: Style) -> list[Segment]:
        """Returns the text with the matches of a search in their own colour."""
        if self._pattern is None:
            return [Segment(text, style)]
        found = style + self.get_component_rich_style("log--match", partial=True)
        pieces, end = [], 0
        for match in self._pattern.finditer(text):
            pieces += [Segment(text[end : match.start()], style), Segment(match[0], found)]
            end = match.end()
        return [*pieces, Segment(text[end:], style)]

    # --- what the find bar uses: see `text_lines.Searched` ---------------------------------------------------------

    read_only = True
    selected_text = ""

    def places(self, term: str) -> list[tuple[text_lines.Place, text_lines.Place]]:
        """Returns start and end of every match in the shown lines, and highlights them until the next search."""
        self._pattern = text_lines.pattern_of(term)
        self.refresh()
        return text_lines.places_of([line.text for line in self._visible], self._pattern)

    def move_cursor(self, location: text_lines.Place, select: bool = False, center: bool = False) -> None:
        """Moves the cursor to the row that shows this line and column."""
        self.cursor = max(bisect_right(self._rows, location) - 1, 0)
        self.scroll_to_region(Region(0, self.cursor, 1, 1), animate=False, x_axis=False)
        self.refresh()

    @property
    def _columns(self) -> int:
        """Cells of a row's text."""
        return max(20, self.scrollable_content_region.width - _MARK)

    @property
    def _line(self) -> LogLine | None:
        """The line under the cursor."""
        return None if self.cursor is None else self._visible[self._rows[self.cursor][0]]

    def action_copy(self) -> None:
        """Copies the line under the cursor, or all shown lines."""
        lines = [self._line] if self._line is not None else self._visible
        self.app.copy_to_clipboard("\n".join(line.text for line in lines))
        words = f"Copied {len(lines)} line{'s' * (len(lines) != 1)}."
        self.app.notify(words, markup=False, timeout=3)

    def action_move(self, step: int) -> None:
        last = len(self._rows) - 1
        start = last + 1 if self.cursor is None else self.cursor
        self.cursor = max(0, min(last, start + step)) if last >= 0 else None
        if self.cursor is not None:
            self.scroll_to_region(Region(0, self.cursor, 1, 1), animate=False, x_axis=False)
        self.refresh()

    def action_follow(self) -> None:
        self.cursor = None
        self._filter()

    def action_show_rank(self, rank: int) -> None:
        self.rank = None if rank < 0 else rank
        self.cursor = None
        self._filter()
        self.border_subtitle = "all ranks" if self.rank is None else f"rank {self.rank} · a = all"

    def action_jump_to_line(self) -> None:
        """Jumps to the kernel line named under the cursor, else to the first one that any message names."""
        lines = self._visible if self._line is None else [self._line, *self._visible]
        for line in lines:
            if (place := named_place(line.text)) is not None:
                self.post_message(LineJump(place[1], place[0]))
                return
        self.app.notify("This line names no line of the kernel.", markup=False, timeout=3)

    def on_click(self, event: Click) -> None:
        row = self.scroll_offset.y + event.get_content_offset_capture(self).y
        if 0 <= row < len(self._rows):
            self.cursor = row
            self.refresh()
            if event.chain == 2:
                self.action_jump_to_line()


def row_starts(text: str, columns: int) -> list[int]:
    """Returns the columns where rows of a wrapped line start: after a space, or inside a word over half a row long.

    Carets of a traceback have no row if they do not fit into one: they would stand below the wrong text.
    """
    if len(text) > columns and not text.strip(" ^~"):
        return []
    starts = [0]
    while len(text) - starts[-1] > columns:
        at = text.rfind(" ", starts[-1] + columns // 2, starts[-1] + columns + 1)
        starts.append(at + 1 if at >= 0 else starts[-1] + columns)
    return starts
