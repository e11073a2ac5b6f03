"""Completion of the kit's names in the editor: the list at the cursor, and the signature of the call around it."""

import re
from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Offset
from textual.widgets import OptionList, TextArea
from textual.widgets.option_list import Option

from arena.workspace.kit_names import MODULES, KitName, kit_names
from screens.widgets.text_lines import Place, PlainStatic

_STARTED = re.compile(rf"(?<![\w.])({'|'.join(MODULES)})\.(\w*)$")
_NAME = re.compile(rf"(?<![\w.])({'|'.join(MODULES)})\.(\w+)")
_CALL_LINES = 20
"""Lines that are searched, from the cursor's upwards, for the beginning of an open call."""
ROWS, COLUMNS = 8, 64
"""The most names that are shown at once, and the width of the list."""
FRAME_ROWS = 4
"""Rows of the list's border, and of the text below the names."""


def _is_kits(lines: Sequence[str], module: str) -> bool:
    """Whether `module` names the kit's module. It does not after an import such as `from torch import cuda`."""
    other = re.compile(rf"\s*(?:from\s+(?!sandbox\.kit\s)[\w.]+\s+import\b.*\b{module}\b|import\b.*\bas\s+{module}\b)")
    return not any(other.match(line) for line in lines)


def names_for(lines: Sequence[str], place: Place) -> tuple[str, tuple[KitName, ...]]:
    """Returns the start of a name in front of `place` and the kit's names with it; none without a kit module."""
    started = _STARTED.search(lines[place[0]][: place[1]])
    if started is None or not _is_kits(lines, started[1]):
        return "", ()
    written = started[2]
    return written, tuple(name for name in kit_names(started[1]) if name.name.startswith(written))


def name_at(lines: Sequence[str], place: Place) -> KitName | None:
    """Returns the kit's name at `place`, or the kit's function whose arguments are written there."""
    row, column = place
    found = next((match for match in _NAME.finditer(lines[row]) if match.start() <= column <= match.end()), None)
    if found is None and (opening := _open_bracket(lines, place)) is not None:
        above, before = opening
        found = next((match for match in _NAME.finditer(lines[above]) if match.end() == before), None)
    if found is None or not _is_kits(lines, found[1]):
        return None
    return next((name for name in kit_names(found[1]) if name.name == found[2]), None)


def _open_bracket(lines: Sequence[str], place: Place) -> Place | None:
    """The last round bracket in front of `place` that is open there and follows a name of the kit."""
    depth = 0
    for row in range(place[0], max(-1, place[0] - _CALL_LINES), -1):
        line = lines[row][: place[1]] if row == place[0] else lines[row]
        for column in range(len(line) - 1, -1, -1):
            if line[column] == ")":
                depth += 1
            elif line[column] == "(":
                depth -= 1
                if depth < 0:
                    if any(match.end() == column for match in _NAME.finditer(line)):
                        return row, column
                    depth = 0  # a bracket of another call or an expression: search on outside it
    return None


def signature_words(name: KitName, room: int) -> str:
    """Returns a function's signature and description, as much of both as fits into `room` columns."""
    full = f"{name.module}.{name.name}{name.types}"
    wordings = (f"{full} · {name.doc}", f"{name.call} · {name.doc}", full, name.call)
    return next((words for words in wordings if cell_len(words) <= room), f"{name.call[: max(room - 1, 0)]}…")


class Completion(Vertical):
    """The list of names that may follow at the cursor of an editor: over the screen, at the typed name.

    It is mounted when it is opened first. The editor keeps the focus; while the list is closed, it takes no keys.
    """

    DEFAULT_CSS = """
    Completion {
        overlay: screen;
        constrain: inside none;
        position: absolute;
        height: auto;
        border: round $accent;
        border-subtitle-color: $muted;
        background: $background;
        & OptionList { height: auto; scrollbar-size-vertical: 1; text-wrap: nowrap; text-overflow: ellipsis; }
        & PlainStatic { height: 2; padding: 0 1; color: $muted; border: none; }
    }
    """
    BORDER_SUBTITLE = "enter inserts · esc closes"
    ALLOW_SELECT: ClassVar[bool] = False

    def __init__(self, editor: TextArea, is_code: Callable[[Place], bool]) -> None:
        """is_code: whether the character at a place is neither in a string nor in a comment."""
        super().__init__()
        self.editor = editor
        self.names: tuple[KitName, ...] = ()
        self._is_code = is_code
        self._written = ""
        self._begin: Place = (0, 0)
        """Where the name starts."""
        self._chosen = 0
        self._due = False
        """Whether a full stop was typed and its Changed message has not arrived yet."""

    def compose(self) -> ComposeResult:
        names = OptionList(compact=True)
        names.can_focus = False
        yield names
        yield PlainStatic()

    def on_mount(self) -> None:
        for moved in ("scroll_x", "scroll_y", "size"):
            self.watch(self.editor, moved, self._find_place, init=False)
        self._fill()

    @property
    def is_open(self) -> bool:
        return bool(self.names)

    @property
    def chosen(self) -> KitName:
        """The name that enter inserts; only while the list is open."""
        return self.names[self._chosen]

    def open(self) -> bool:
        """Shows the names that complete the text in front of the cursor; returns False if there are none."""
        row, column = self.editor.cursor_location
        written, names = names_for(self.editor.document.lines, (row, column))
        if not names or not self._is_code((row, column - len(written) - 1)):
            return False
        self._begin = (row, column - len(written))
        self._show_names(written, names)
        return True

    def close(self) -> bool:
        """Hides the list; returns False if it was closed already."""
        was_open, self.names = self.is_open, ()
        self.display = False
        return was_open

    def follow(self) -> None:
        """Updates the list after a change of the text or the cursor."""
        due, self._due = self._due, False
        if self.is_open:
            row, column = self.editor.cursor_location
            written, names = names_for(self.editor.document.lines, (row, column))
            if not names or (row, column - len(written)) != self._begin:
                self.close()
            elif (written, names) != (self._written, self.names):
                self._show_names(written, names)
        if due and not self.is_open:
            self.open()

    def take(self, key: str, *, typed: bool) -> bool:
        """Handles a key of the editor; returns whether the list used it. typed: the key writes a character."""
        if self.is_open or self._due:
            self.follow()  # the message of the letter before this key may not have arrived yet
        self._due = key == "full_stop" or (self._due and typed)
        if not self.is_open:
            return False
        last = len(self.names) - 1
        if key in ("enter", "tab") and self.chosen.name != self._written:
            self._accept(self._chosen)
        elif key == "escape":
            self.close()
        elif key in (steps := {"up": -1, "down": 1}):
            self._choose((self._chosen + steps[key]) % len(self.names))
        elif key in (steps := {"pageup": -ROWS, "pagedown": ROWS}):
            self._choose(min(max(self._chosen + steps[key], 0), last))
        else:
            if key in ("enter", "tab"):  # the name is complete: the key keeps its usual effect
                self.close()
            return False
        return True

    def _accept(self, index: int) -> None:
        """Replaces the typed beginning with the name at `index`."""
        name = self.names[index]
        self.close()
        self.editor.replace(name.name, self._begin, self.editor.cursor_location)

    def _show_names(self, written: str, names: tuple[KitName, ...]) -> None:
        self._written, self.names, self._chosen = written, names, 0
        if self.is_attached:
            self._fill()
        else:
            self.editor.screen.mount(self)

    def _fill(self) -> None:
        self.display = self.is_open
        if self.is_open and self.children:
            rows = [Content(f"{name.name}{name.parameters}") for name in self.names]
            self.query_one(OptionList).set_options([Option(row) for row in rows])
            self._find_place()
            self._choose(0)

    def _choose(self, index: int) -> None:
        """Highlights one name, and shows its description."""
        self._chosen = index
        if self.children:
            self.query_one(OptionList).highlighted = index
            self.query_one(PlainStatic).update(Content(self.chosen.doc))

    def _find_place(self) -> None:
        """Places the list below the name, or above it if there is no room. The cursor's line stays visible."""
        if not self.is_open:
            return
        column, row = self.editor.cursor_screen_offset - Offset(len(self._written), 0)
        columns, lines = self.screen.size
        above, below = row, lines - row - 2  # the last line has the keys
        rows = max(1, min(ROWS, len(self.names), max(above, below) - FRAME_ROWS))
        self.styles.width = min(COLUMNS, columns)
        self.query_one(OptionList).styles.max_height = rows
        fits = below >= rows + FRAME_ROWS
        self.absolute_offset = Offset(column - 1, row + 1 if fits else row - rows - FRAME_ROWS)
        self.refresh(layout=True)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Inserts a name that was clicked."""
        event.stop()
        if self.is_open:
            self._accept(event.option_index)
