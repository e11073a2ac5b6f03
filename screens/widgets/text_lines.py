"""Lines of a text: wrapping to a measured width, Markdown, edits of whole lines, marks that stay with them, search. A term in
lower case matches both cases.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Protocol

from rich.cells import cell_len
from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget
from textual.widgets import Static

from arena.words.untrusted_text import masked

LEAST = 16
"""Minimum columns of the text, also in a narrower pane."""


def hanging(label: Content, text: Content, width: int, column: int) -> list[Content]:
    """The rows of a pane `width` cells wide; the text begins in `column`."""
    lines = text.wrap(max(width - column, LEAST))
    first = label + Content(" " * max(1, column - label.cell_length)) + lines[0]
    return [first, *(Content(" " * column) + line for line in lines[1:])]


_GAP = 2
"""Blank columns between those of a table, and before code."""


def markdown_rows(text: str, width: int) -> list[Content]:
    """Draws a text for so many columns."""
    blocks = re.findall(r"^```.*?^```|.+?(?=\n\s*\n|\Z)", text, re.DOTALL | re.MULTILINE)
    return [row for block in blocks for row in (*_block_rows(block.strip("\n"), width), Content(""))]


def _block_rows(block: str, width: int) -> list[Content]:
    if block.startswith("#"):
        title = Content.styled(block.lstrip("# "), "$accent bold" if block.startswith("##") else "$foreground bold")
        return title.wrap(max(width, LEAST))
    if block.startswith("|"):
        head, _, *lines = ([_marked(cell.strip()) for cell in line.split("|")[1:-1]] for line in block.splitlines())
        return _table_rows([[cell.stylize("$muted") for cell in head], *lines], width)
    if block.startswith(("```", "    ")):
        code = [line.removeprefix("    ") for line in block.splitlines() if not line.startswith("```")]
        wrapped = (Content.styled(line, "$code-string").wrap(max(width - _GAP, LEAST)) for line in code)
        return [Content(" " * _GAP) + part for parts in wrapped for part in parts]
    rows = []
    for item in re.split(r"\n(?=[-*] |\d+\. )", block):
        words = " ".join(item.split())
        sign, _, rest = words.partition(" ")
        is_item = re.fullmatch(r"[-*]|\d+\.", sign)
        rows += hanging(Content(sign), _marked(rest), width, 3) if is_item else _marked(words).wrap(max(width, LEAST))
    return rows


def _table_rows(cells: Sequence[Sequence[Content]], width: int) -> list[Content]:
    """Draws a table. If it is too wide, its widest columns are wrapped."""
    widths = [max(cell.cell_length for cell in column) for column in zip(*cells, strict=True)]
    while sum(widths) + _GAP * (len(widths) - 1) > max(width, LEAST) and max(widths) > 1:
        widths[widths.index(max(widths))] -= 1
    rows = []
    for row in cells:
        wrapped = [cell.wrap(max(columns, 1)) for cell, columns in zip(row, widths, strict=True)]
        for parts in zip_longest(*wrapped, fillvalue=Content("")):
            padded = (part.pad_right(at - part.cell_length + _GAP) for part, at in zip(parts, widths, strict=True))
            rows.append(Content("").join(padded).rstrip())
    return rows


def _marked(words: str) -> Content:
    """Styles `code` and **bold**."""
    styles = {"`": "$code-string", "*": "bold"}
    parts = re.split(r"(`.+?`|\*\*.+?\*\*)", words)
    return Content.assemble(*((part.strip("`*"), styles[part[0]]) if at % 2 else part for at, part in enumerate(parts)))


def found_in(section: str, words: Sequence[str]) -> str:
    """Returns a section with only the rows, items and paragraphs where all words begin a word; empty if none has them."""
    wanted = [re.compile(rf"(?:\b|(?=\W)){re.escape(word)}", re.IGNORECASE) for word in words]
    title, *blocks = section.split("\n\n")
    kept = []
    for block in blocks:
        rows = re.split(r"\n(?=[|\-\d])", block)
        head = rows[:2] if block.startswith("|") else []
        rows = [row for row in rows[len(head) :] if all(word.search(row) for word in wanted)]
        if rows:
            kept.append("\n".join([*head, *rows]))
    return "\n\n".join([title, *kept]) if kept else ""


class PlainStatic(Static):
    """Shows strings as they are. Styled text is passed as `Content`."""

    def __init__(self, content: str | Content = "", *, id: str | None = None, classes: str = "") -> None:
        super().__init__(content, markup=False, id=id, classes=classes)
        self._last_content: Content | None = None

    def clear_cached_dimensions(self) -> None:
        """Forgets the size of the text before: Textual keeps it if a layout was pending when the text was replaced."""
        self._box_model_cache.clear()
        super().clear_cached_dimensions()

    def update_if_new(self, content: Content) -> bool:
        """Updates only if the content is new; returns whether it is. A layout follows if the size depends on the text."""
        if self._last_content is not None and content.is_same(self._last_content):
            return False
        self._last_content = content
        self.update(content, layout=self.styles.auto_dimensions)
        return True


class FittedText(PlainStatic):
    """Rows that are made for the width that the layout gives."""

    def __init__(self, rows: Callable[[int], list[Content]], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rows = rows

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Counts the rows: a text that is drawn after the first layout would get no height."""
        return len(self._rows(width))

    def render(self) -> Content:
        return Content("\n").join(self._rows(self.size.width))


def follow_width(widget: Widget, draw: Callable[[], object]) -> None:
    """Calls `draw` after every layout that gives a mounted widget another width."""
    width = 0

    def laid_out(screen: object) -> None:
        nonlocal width
        if widget.size.width != width:
            width = widget.size.width
            draw()

    widget.screen.screen_layout_refresh_signal.subscribe(widget, laid_out)


def indented(lines: Sequence[str], width: int) -> list[str]:
    """Indents lines by one level; blank lines stay as they are."""
    return [" " * width + line if line.strip() else line for line in lines]


def dedented(lines: Sequence[str], width: int) -> list[str]:
    """Dedents lines by one level, or by less if a line is indented by less."""
    found = []
    for line in lines:
        blanks = len(line) - len(line.lstrip(" "))
        found.append(line[1:] if line.startswith("\t") else line[min(blanks, width) :])
    return found


def next_indent(line: str, width: int) -> str:
    """Returns the indentation of the line that follows: one level deeper after a colon or an opening bracket."""
    deeper = line.rstrip().endswith((":", "(", "[", "{"))
    return line[: len(line) - len(line.lstrip())] + " " * (width if deeper else 0)


def comment_toggled(lines: Sequence[str], sign: str) -> list[str]:
    """Removes the comment signs if all lines are comments; else makes every line that is not blank a comment.

    All signs are added in one column, that of the least indented line.
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
    """Returns the most cells that `masked` adds to a line: a control character has none, its sign has one."""
    text = "\n".join(lines)
    return max(cell_len(masked(line)) - cell_len(line) for line in lines) if masked(text) != text else 0


NEAR = 40
"""How many lines above and below are searched for a marked line after an edit."""


@dataclass
class _Mark:
    """A marked line; kept also while its text differs."""

    origin: int
    """Its number when it was marked."""
    row: int
    """The last row where it was found."""
    text: str
    words: str


class LineMarks:
    """Marked lines: words by line number (from 0)."""

    def __init__(self) -> None:
        self.words: dict[int, str] = {}
        self._marks: list[_Mark] = []

    def set(self, words: Mapping[int, str], lines: Sequence[str]) -> None:
        """Replaces all marks. A number beyond the end of the text marks its last line."""
        last = max(len(lines) - 1, 0)
        self.words = {min(max(row, 0), last): said for row, said in words.items()}
        self._marks = [_Mark(row, row, lines[row], said) for row, said in self.words.items() if row < len(lines)]

    def follow(self, lines: Sequence[str]) -> None:
        """Moves the marks with their lines after an edit. A mark is hidden while no line near it has its text."""
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
        """Returns the current row of the line marked at `origin`; `origin` itself if it was not marked."""
        return next((mark.row for mark in self._marks if mark.origin == origin), origin)


Place = tuple[int, int]
"""Line and column, from 0."""


class Searched(Protocol):
    """A text that a bar can search: a source, or the log."""

    selection: Any
    """A `Selection`."""

    @property
    def read_only(self) -> bool: ...

    @property
    def selected_text(self) -> str: ...

    def places(self, term: str) -> list[tuple[Place, Place]]:
        """Returns start and end of every match, and highlights all matches until another term is given."""

    def move_cursor(self, location: Place, select: bool = False, center: bool = False) -> None: ...

    def focus(self, scroll_visible: bool = True) -> Widget: ...


def pattern_of(term: str) -> re.Pattern[str] | None:
    """Returns the pattern of a plain text; None if it is empty. With a capital letter it is case-sensitive."""
    if not term:
        return None
    return re.compile(re.escape(term), re.NOFLAG if term != term.lower() else re.IGNORECASE)


def places_of(lines: Sequence[str], pattern: re.Pattern[str] | None) -> list[tuple[Place, Place]]:
    """Start and end of every match, in order. A match lies within a line."""
    if pattern is None:
        return []
    return [
        ((row, match.start()), (row, match.end())) for row, line in enumerate(lines) for match in pattern.finditer(line)
    ]


def next_place(places: Sequence[tuple[Place, Place]], cursor: Place, backward: bool) -> int:
    """Returns the index of the next match from the cursor; wraps at both ends. `places` must not be empty."""
    if backward:
        before = [number for number, (start, _) in enumerate(places) if start < cursor]
        return before[-1] if before else len(places) - 1
    return next((number for number, (start, _) in enumerate(places) if start >= cursor), 0)
