"""A source file: a TextArea that colours Python, CUDA and C++, and draws quickly."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.cache import LRUCache
from textual.document._document_navigator import DocumentNavigator
from textual.document._edit import Edit
from textual.document._wrapped_document import WrappedDocument
from textual.geometry import Offset, Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import TextArea

from arena.words.untrusted_text import masked
from screens.widgets import text_lines
from screens.widgets.highlight import DIFF_KINDS, Part, has_fence, language_of, line_spans, parts_of
from screens.widgets.text_lines import LineMarks

SOURCE_STYLES = Path(__file__).with_name("source.tcss")
"""For the CSS_PATH of every screen with source texts: a DEFAULT_CSS cannot override Textual's rules for a TextArea."""
_LINES_KEPT = 512
"""Number of cached drawn lines; more than any screen shows."""
_WIDTH_STEP = 32
_TAIL = 8_000
"""Characters that are shown of a growing text: more than fit into any pane."""
_CODE = ("import ", "from ", '"""', "#", "def ", "class ", "@")
"""How an answer begins if it is only a Python file."""
_CURSOR_CELLS = 3
"""Cells that a TextArea keeps visible from the cursor on."""

_KINDS = ("keyword", "name", "builtin", "string", "number", "comment", "decorator", *DIFF_KINDS.values())


class CountedDocument(WrappedDocument):
    """Returns its height without adding up all its lines, because a TextArea reads it for every line it draws."""

    @property
    def height(self) -> int:
        return len(self._offset_to_line_info)


class Source(TextArea):
    """A source text in colours; read-only by default."""

    NUMBERED: ClassVar[bool] = True
    """Whether a text that is shown has numbers of its lines, if it is no diff."""
    COMPONENT_CLASSES = TextArea.COMPONENT_CLASSES | {f"source--{kind}" for kind in (*_KINDS, "match", "mark")}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+home", "cursor_document_end(-1)", "start of the text", show=False),
        Binding("ctrl+end", "cursor_document_end(1)", "end of the text", show=False),
        Binding("ctrl+shift+home", "cursor_document_end(-1, True)", "select to the start", show=False),
        Binding("ctrl+shift+end", "cursor_document_end(1, True)", "select to the end", show=False),
    ]

    def __init__(
        self, text: str = "", *, name: str = "kernel.py", read_only: bool = True, id: str | None = None
    ) -> None:
        super().__init__(
            text, read_only=read_only, show_line_numbers=True, soft_wrap=False, tab_behavior="indent",
            max_checkpoints=500, id=id, name=name,
        )  # fmt: skip
        self.source_language = language_of(name)
        self._parts: dict[int, list[Part]] = {}
        self._parts_of: int | None = None
        self._styles: dict[str, Style] = {}
        self._drawn: LRUCache[tuple[object, ...], Strip] = LRUCache(_LINES_KEPT)
        self._view: tuple[object, ...] = ()
        self._special: set[int] = set()
        """Lines with the cursor, with selected text, or with the bracket that matches the one at the cursor."""
        self._first_line = 0
        self._pattern = text_lines.pattern_of("")
        self.marks = LineMarks()
        # In a TextArea these keys delete a word and select a line or all; here the screens have them, in the footer's order.
        for key in ("ctrl+f", "f6", "f7"):  # Textual has no way to leave out one inherited binding
            self._bindings.key_to_bindings.pop(key, None)

    # --- what other editors also have ------------------------------------------------------------------------

    def show(self, text: str, name: str) -> None:
        """Shows another text, coloured in the language of a file called `name`."""
        self.source_language = language_of(name)
        self.soft_wrap = self.source_language == "prose"
        self.show_line_numbers = self.NUMBERED and self.source_language != "diff"
        self._parts_of = None
        self._drawn.clear()
        self.text = text

    def compare(self, old: Mapping[str, str], new: Mapping[str, str], old_name: str, new_name: str) -> None:
        """Shows the changes from one kernel to another as a unified diff, as git does. Both are texts by file name."""
        found: list[str] = []
        for file in (files := {**old, **new}):
            before, after = (texts.get(file, "").splitlines() for texts in (old, new))
            names = {old_name: old, new_name: new}
            heads = [f"{name}/{file}" if file in texts else "/dev/null" for name, texts in names.items()]
            first, second = heads if len(files) > 1 else names
            found += difflib.unified_diff(before, after, first, second, lineterm="", n=4)
        self.show("\n".join(found) or f"{new_name} is the same as {old_name}.", "changes.diff")

    def mark_lines(self, words: Mapping[int, str]) -> None:
        """Marks lines (from 0) in the gutter and removes all earlier marks."""
        shown = self.marks.words
        self.marks.set(words, self.document.lines)
        if words or shown:
            self.refresh()

    def places(self, term: str) -> list[tuple[text_lines.Place, text_lines.Place]]:
        """Returns start and end of every match, and highlights all matches until another term is given."""
        pattern = text_lines.pattern_of(term)
        if pattern != self._pattern:
            self._pattern = pattern
            self._drawn.clear()
            self._line_cache.clear()  # TextArea's own: lines with the cursor or the selection
            self.refresh()
        return text_lines.places_of(self.document.lines, pattern)

    def jump_to(self, line: int) -> None:
        """Puts the cursor on a line (1-based) and the line in the middle of the pane."""
        row = max(0, min(line - 1, self.document.line_count - 1))
        self.move_cursor((row, 0), center=True)
        self.focus()

    def action_cursor_document_end(self, direction: int, select: bool = False) -> None:
        """Moves to the start (-1) or the end (1) of the text. Most editors have keys for this; TextArea has none."""
        self.move_cursor(self.document.start if direction < 0 else self.document.end, select=select)

    @property
    def left(self) -> int | None:
        """Where to scroll sideways: to the lines' start if the cursor is visible there, else nowhere."""
        x, _ = self.wrapped_document.location_to_offset(self.cursor_location)
        return 0 if x + _CURSOR_CELLS + self.gutter_width <= self.scrollable_content_region.width else None

    def scroll_cursor_visible(self, center: bool = False, animate: bool = False) -> Offset:
        """Scrolls to the cursor. center: to the middle row; sideways only if the cursor would not be visible.

        A TextArea also centres the cursor's column, and does not go back to the lines' start.
        """
        room = self.scrollable_content_region.size
        if not room:
            return super().scroll_cursor_visible(center, animate)
        before = self.scroll_offset
        _, y = self.wrapped_document.location_to_offset(self.cursor_location)
        self.scroll_to(self.left, y - room.height // 2 if center else None, animate=False, force=True, immediate=True)
        super().scroll_cursor_visible(animate=animate)
        return self.scroll_offset - before

    # --- changes of the text ---------------------------------------------------------------------------------
    #
    # A TextArea updates its wrapped lines by ranges that do not fit several edits, and refreshes its sizes while the
    # cursor may still be below the end of the text. The refresh scrolls to the cursor, and that fails.

    def _undo_batch(self, edits: Sequence[Edit]) -> None:
        for edit in reversed(edits):
            edit.undo(self)
        self._text_replaced(reversed(edits))

    def _redo_batch(self, edits: Sequence[Edit]) -> None:
        for edit in edits:
            edit.do(self, record_selection=False)
        self._text_replaced(edits)

    def _text_replaced(self, edits: Iterable[Edit]) -> None:
        """Follows an undo or a redo of edits, which stand in the order in which they were applied to the document."""
        self.wrapped_document.wrap(self.wrap_width, self.indent_width)
        self._refresh_size()
        for edit in edits:
            edit.after(self)
        self._build_highlight_map()
        self.post_message(self.Changed(self))
        self.update_suggestion()

    def _refresh_size(self) -> None:
        """Puts the cursor back into the text first: see above."""
        self.selection = self._validate_selection(self.selection)
        super()._refresh_size()

    # --- drawing ---------------------------------------------------------------------------------------------

    def validate_virtual_size(self, size: Size) -> Size:
        """Rounds a width beyond the pane up to steps, so that one more letter in the longest line needs no layout."""
        width = size.width and size.width + text_lines.cells_of_masks(self.document.lines)  # 0 if lines are wrapped
        step = 1 if width <= self.scrollable_content_region.width else _WIDTH_STEP
        return Size(-(-width // step) * step, size.height)

    def _set_document(self, text: str, language: str | None) -> None:
        super()._set_document(text, language)
        self.wrapped_document = CountedDocument(self.document, tab_width=self.indent_width)
        self.navigator = DocumentNavigator(self.wrapped_document)
        self._rewrap_and_refresh_virtual_size()

    def get_line(self, line_index: int) -> Text:
        """Returns the line with its colours, unlike TextArea's; visible signs replace control characters."""
        text = masked(self.document.get_line(line_index))
        line = Text(text, end="", no_wrap=True)
        for start, end, kind in line_spans(text, self._parts.get(line_index, ()), self.source_language):
            line.stylize(self._styles.get(kind, ""), start, end)
        if self._pattern is not None:
            for match in self._pattern.finditer(text):
                line.stylize(self._styles.get("match", ""), *match.span())
        return line

    def render_lines(self, crop: Region) -> list[Strip]:
        self._find_parts()
        self._read_state()
        if self._styles:
            return ScrollView.render_lines(self, crop)
        self._read_styles()
        # TextArea's method looks up all styles every time, which takes longer than drawing. Once per theme is enough.
        if self._theme is not None:
            self._theme.apply_css(self)
            line = self._theme.cursor_line_style
            # A text colour of the cursor line would replace the colours of the code.
            self._theme.cursor_line_style = Style(bgcolor=line.bgcolor) if line is not None else None
        return ScrollView.render_lines(self, crop)

    def _find_parts(self) -> None:
        version = hash(tuple(self.document.lines))  # takes microseconds, because strings cache their hashes
        if version != self._parts_of:
            self._parts_of = version
            self._parts = parts_of(self.document.lines, self.source_language)

    def is_code(self, place: text_lines.Place) -> bool:
        """Whether the character at `place` is Python, and neither in a string nor in a comment."""
        self._find_parts()
        row, column = place
        parts = self._parts.get(row, ())
        spans = line_spans(self.document.get_line(row), parts, self.source_language)
        return self.source_language == "python" and not (
            any(part.start <= column and (part.end is None or column < part.end) for part in parts)
            or any(span.start <= column < span.end and span.kind in ("string", "comment") for span in spans)
        )

    def _read_state(self) -> None:
        """Reads once per paint what all its lines need; a TextArea reads its reactives again for every line."""
        cursor, end = self.selection
        bracket = self._matching_bracket_location
        self._special = {bracket[0]} if bracket is not None else set()
        self._special.update(range(min(cursor[0], end[0]), max(cursor[0], end[0]) + 1))
        self._first_line = self.scroll_offset.y
        view = (
            self.scroll_offset.x,
            self.size,
            self.virtual_size.width,
            self.gutter_width,
            self.wrapped_document._width,
        )
        if view != self._view or not self._styles:
            self._view = view
            self._drawn.clear()

    def render_line(self, y: int) -> Strip:
        """Draws a line. Lines without cursor or selection stay cached; a TextArea drops all its lines at every key.

        `TextArea.render_line` has cursor and selection in the cache keys of all lines, and drops lines whose text is
        unchanged. If Textual changes that, `_line_cache`, `_offset_to_line_info` and `CountedDocument` can go here.
        """
        rows = self.wrapped_document._offset_to_line_info
        if y + self._first_line >= len(rows):
            return super().render_line(y)
        line, section = rows[y + self._first_line]
        strip: Strip | None
        if line in self._special:
            strip = super().render_line(y)
        else:
            key = (line, section, self.document.get_line(line), tuple(self._parts.get(line, ())))
            strip = self._drawn.get(key)
            if strip is None:
                strip = self._drawn[key] = self._render_line(y)
        return self._marked(strip, line) if section == 0 and line in self.marks.words else strip

    def _marked(self, strip: Strip, line: int) -> Strip:
        """Adds a sign behind the line's number. Textual has no `TextArea.render_gutter` that could be overridden."""
        width = self.gutter_width
        gutter = Segment(f"{line + 1:>{width - 2}}✗ ", self.get_component_rich_style("source--mark"))
        return Strip([gutter, *strip.crop(width)], strip.cell_length)

    def notify_style_update(self) -> None:
        """Drops the colours of the old theme; the next drawing looks them up again."""
        self._styles = {}
        super().notify_style_update()

    def _read_styles(self) -> None:
        for kind in _KINDS:
            style = self.get_component_rich_style(f"source--{kind}", partial=True)
            self._styles[kind] = Style(color=style.color, bold=style.bold, italic=style.italic)
        self._styles["match"] = self.get_component_rich_style("source--match")


class Writing(Source, can_focus=False):
    """The end of a growing text: an answer with code in fences, or only code."""

    NUMBERED = False
    _length = -1

    def on_mount(self) -> None:
        self.highlight_cursor_line = False

    def follow(self, text: str) -> None:
        """Shows the end of `text`, which is all that was written so far."""
        if len(text) == self._length:
            return
        self._length = len(text)
        start = text.rfind("\n", 0, -_TAIL) + 1 if len(text) > _TAIL else 0
        # A fence that is open before the tail is opened again in it, as Python: a long answer has reached its code.
        opened = "```python\n" if start and text.count("\n```", 0, start) % 2 else ""
        code = text.lstrip().startswith(_CODE) and not has_fence(text)
        self.show(f"{opened}{text[start:]}▌", "kernel.py" if code else "answer.md")
        self.move_cursor(self.document.end)
