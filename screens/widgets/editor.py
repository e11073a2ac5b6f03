"""The kernel editor: an editable source that compares its text with the file on disk."""

from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.document._edit import Edit
from textual.document._history import EditHistory
from textual.message import Message
from textual.widgets.text_area import Selection

from arena.workspace.kernel_folder import plain, with_line_ends
from sandbox.protocol.kernel_files import MAIN
from screens.app_protocol import BURST_S, text_of
from screens.widgets import text_lines
from screens.widgets.completion import Completion, name_at, signature_words
from screens.widgets.source import Source
from screens.widgets.vim import KEYS, Registers, Vim, common_start, on_character, place_at

_WRITING = frozenset(["indent", "dedent", "toggle_comment", "delete_left", "undo", "redo"])
"""The actions that write without a check of `read_only`; the other actions check it themselves."""
_REGISTERS = Registers()
"""Vim's, of all editors: what is deleted in one file can be put into another."""
_FAST_S, _PAUSE_S, _PROGRAMS_PAUSE_S = 0.12, 0.2, 0.5
"""Seconds between two keys: fingers press none thrice so fast; the longest within a text of fingers, and of a program."""


@dataclass
class Typed:
    """Text that keys type one after another without a pause."""

    start: text_lines.Place
    end: text_lines.Place
    text: str = ""
    at: float = 0.0
    """When its last key came, in seconds."""
    fast: int = 0
    """The number of its last keys that came faster than fingers can repeat one."""
    indented: bool = False
    """Whether a program types it, with its own indentation."""

    def follow(self, text: str, at: float, indented: bool) -> None:
        """Adds what was typed. Only a program repeats blanks so fast behind Enter, or begins two lines with tabs."""
        self.fast = self.fast + 1 if at - self.at < _FAST_S else 0
        self.at = at
        if not self.indented:
            self.text += text
            line = self.text[self.text.rfind("\n") :]
            blanks = len(line) - 1 if line[:1] == "\n" and line.isspace() else 0
            fewest = 1 if line[1:] == "\t" and self.text.count("\n\t") > 1 else 2
            self.indented = indented or self.fast >= blanks >= fewest


class StepHistory(EditHistory):
    """An undo history that can make many edits one step."""

    _joins = _begun = False

    def join(self, joins: bool) -> None:
        """Begins a step. joins: all edits belong to it until the next call; else as in every TextArea."""
        self._joins, self._begun = joins, False
        self.checkpoint()

    def record(self, edit: Edit) -> None:
        if self._joins and self._begun and self._undo_stack:
            self._undo_stack[-1].append(edit)
            self._redo_stack.clear()
            return
        super().record(edit)
        self._begun = bool(self._undo_stack) and self._undo_stack[-1][-1] is edit  # not if it changed nothing

    def _pop_undo(self) -> list[Edit] | None:
        self._begun = False
        return super()._pop_undo()


class Editor(Source):
    """A file of the player's kernel. Its lines end with \\n; `file_text` has the line ends of the file.

    The app's `vim_keys` says whether it has the keys of vim.
    """

    BINDING_GROUP_TITLE = "Editor"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "indent", "indent the selected lines", show=False),
        Binding("shift+tab", "dedent", "dedent the selected lines", show=False),
        # Many terminals send the same byte for ctrl+/ and ctrl+_. Those that distinguish the two send ctrl+/.
        Binding("ctrl+underscore,ctrl+slash", "toggle_comment", "comment", show=False, key_display="^/"),
    ]

    @dataclass
    class Asked(Message):
        """Vim's `:w`, `:q` or `:wq`."""

        saves: bool
        leaves: bool

    def __init__(self, *, name: str = MAIN, id: str | None = None) -> None:
        """name: of the file; says its language."""
        super().__init__("", name=name, read_only=False, id=id)
        self.history: StepHistory = StepHistory(self.history.max_checkpoints, 2.0, 100)
        self.completion = Completion(self, self.is_code)
        self._typed = Typed((0, 0), (0, 0))
        self._vim = Vim(_REGISTERS, self.indent_width)
        self._vim_shown = self.selection
        """What vim selected last; the mouse and other keys may have moved it since."""
        self.saved_text, self._saved_plain = "", ""
        """The file's text as last read or saved, and the same with the line ends of the editor."""
        self.gone = False
        """Whether the file was deleted since."""

    @property
    def dirty(self) -> bool:
        """Whether the text differs from the file, or there is no file.

        Compared anew, as a change's message may come after the next key.
        """
        return self.gone or self.text != self._saved_plain

    @property
    def file_text(self) -> str:
        return self.saved_text if self.text == self._saved_plain else with_line_ends(self.text, self.saved_text)

    def open_saved(self, text: str) -> None:
        """Shows a file for the first time. Undo goes back to it, or to text that was typed before it was loaded."""
        if self.text:
            self.show_saved(text)
            return
        self.mark_saved(text)
        self.load_text(self._saved_plain)

    def show_saved(self, text: str) -> None:
        """Shows the text on disk. If the text is the same, cursor and undo history stay."""
        self.mark_saved(text)
        if self.dirty:
            cursor, scroll = self.cursor_location, self.scroll_offset
            self.replace(self._saved_plain, self.document.start, self.document.end)  # undo brings the old text back
            self.move_cursor(self.clamp_visitable(cursor))
            self.scroll_to(*scroll, animate=False)

    def mark_saved(self, text: str) -> None:
        """Records that `text` is on disk."""
        self.saved_text, self._saved_plain = text, plain(text)
        self.gone = False

    def mark_gone(self) -> None:
        """Records that the file was deleted: the text is unsaved."""
        self.gone = True

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disables writing while the editor is read-only, as for another player's kernel."""
        return False if self.read_only and action in _WRITING else super().check_action(action, parameters)

    async def on_key(self, event: events.Key) -> None:
        """Handles a key completely before the next one.

        Textual types letters at once but sends every other key up through all parents first. In a quick burst, letters
        would overtake the arrows and backspaces typed before them.
        """
        vim = self.vim
        if vim is not None and vim.mode != "INSERT":
            key = event.character if event.is_printable else KEYS.get(event.key)
            if key is None:
                return
            self.press(key)
        elif self.read_only:
            return
        elif self.completion.take(event.key, typed=event.is_printable):
            pass
        elif (text := text_of(event)) and (text != "\t" or self.selection.is_empty):
            self._restart_blink()
            self._type(text, event.time)
        elif not await self._act(event.key):
            return
        event.prevent_default()
        event.stop()

    # --- vim's keys ------------------------------------------------------------------------------------------

    @property
    def vim(self) -> Vim | None:
        """Vim's state at the current cursor; None without vim's keys."""
        vim = self._vim
        if not getattr(self.app, "vim_keys", False):
            if vim.mode != "NORMAL":  # they were on before
                vim.mode = "NORMAL"
                self.history.join(False)
                self.remove_class("-insert")
            return None
        if self.selection != self._vim_shown:
            self._vim_shown = self.selection
            vim.point(*map(self._offset_of, self.selection))
        return vim

    @property
    def mode(self) -> str:
        """Vim's mode, with the keys of an unfinished command; empty without vim's keys."""
        return f"{vim.mode} {vim.keys}".rstrip() if (vim := self.vim) is not None else ""

    @property
    def types(self) -> bool:
        """Whether characters are written into the text."""
        return not self.read_only and (self.vim is None or self._vim.mode == "INSERT")

    def _offset_of(self, place: text_lines.Place) -> int:
        return sum(len(line) + 1 for line in self.document.lines[: place[0]]) + place[1]

    def press(self, key: str) -> None:
        """Handles a key of vim's normal or visual mode."""
        vim = self._vim
        vim.page = max(self.size.height - 2, 1)
        vim.press(key, self.text)
        if self.read_only:
            vim.text, vim.mode = self.text, "NORMAL" if vim.mode == "INSERT" else vim.mode
        self.history.join(vim.mode == "INSERT")
        asked, times = vim.asks
        if asked in ("undo", "redo") and not self.read_only:
            for _ in range(min(times, self.history.max_checkpoints)):
                self.undo() if asked == "undo" else self.redo()
            vim.text, vim.cursor = self.text, self._offset_of(min(self.selection))
            vim.cursor = on_character(vim.text, vim.cursor)
        self._show_vim(vim)
        if asked in ("save", "leave", "save and leave"):
            self.post_message(self.Asked("save" in asked, "leave" in asked))
        elif asked == "copy":
            self.app.copy_to_clipboard(vim.registers.text)
        elif asked == "center":
            self.scroll_cursor_visible(center=True)
        elif asked and asked not in ("undo", "redo"):
            self.notify(f"No command of this editor: {asked!r}", severity="warning", markup=False)

    def _show_vim(self, vim: Vim) -> None:
        """Shows vim's text, by one edit of the part that changed, and its selection."""
        text = self.text
        if vim.text != text:
            start = common_start(text, vim.text)
            behind = common_start(text[start:][::-1], vim.text[start:][::-1])
            ends = place_at(text, start), place_at(text, len(text) - behind)
            self.replace(vim.text[start : len(vim.text) - behind], *ends)
        x = self.scroll_offset.x
        self.selection = Selection(*(place_at(vim.text, at) for at in vim.selection))
        self.scroll_to(x if vim.mode == "V-LINE" else self.left, animate=False)  # V-LINE's cursor is at the line's end
        self._vim_shown = self.selection
        self.places(vim.term)
        self.set_class(vim.mode == "INSERT", "-insert")
        self.post_message(self.SelectionChanged(self.selection, self))  # the border shows the mode

    def leave(self) -> bool:
        """Handles escape: closes the list of names, or ends a mode of vim. Returns False if there is nothing to end."""
        vim = self.vim
        if self.completion.close():
            return True
        at = self._offset_of(self.cursor_location)
        if vim is None or not self.has_focus or not vim.leave(self.text, at):
            return False
        self._show_vim(vim)
        self.history.join(False)
        return True

    # TextArea types a tab, or moves the focus, before it checks any binding, so `on_key` runs these actions first.
    # With `tab_behavior="indent"`, Textual replaces a selection instead of indenting it.

    def action_indent(self) -> None:
        """Indents the selected lines by one level; without a selection, a tab is typed."""
        self._edit_lines(text_lines.indented(self._selected_lines(), self.indent_width))

    def action_dedent(self) -> None:
        """Dedents the selected lines, or the cursor's, by one level."""
        self._edit_lines(text_lines.dedented(self._selected_lines(), self.indent_width))

    def action_toggle_comment(self) -> None:
        """Turns the selected lines, or the cursor's, into comments or back into code."""
        first = self._selected_rows().start
        in_cuda = any(part.language == "cuda" and part.start == 0 for part in self._parts.get(first, ()))
        self._edit_lines(text_lines.comment_toggled(self._selected_lines(), "//" if in_cuda else "#"))

    def _selected_rows(self) -> range:
        """Returns the selected rows. A selection that ends at the start of a line excludes that line."""
        (first, _), (last, column) = sorted(self.selection)
        return range(first, last if last > first and column == 0 else last + 1)

    def _selected_lines(self) -> list[str]:
        return [self.document.get_line(row) for row in self._selected_rows()]

    def _edit_lines(self, lines: list[str]) -> None:
        """Replaces the selected lines in one step of the undo history; the selection stays."""
        rows, before, selection = self._selected_rows(), self._selected_lines(), self.selection
        if lines == before:
            return
        end = (rows[-1], len(before[-1]))
        self.replace("\n".join(lines), (rows[0], 0), end)

        def moved(place: tuple[int, int]) -> tuple[int, int]:
            row, column = place
            if row not in rows:
                return place
            longer = len(lines[row - rows[0]]) - len(before[row - rows[0]])
            return (row, max(0, column + longer) if column else 0)

        self.selection = Selection(moved(selection.start), moved(selection.end))

    async def _act(self, key: str) -> bool:
        """Runs the editor's action for the key, if it has one that is enabled. Returns whether one ran."""
        for binding in self._bindings.key_to_bindings.get(key, ()):
            if await self.app.run_action(binding.action, self):
                return True
        return False

    async def _on_paste(self, event: events.Paste) -> None:
        """Pastes a text. Where the app took keys for a paste, those before them are the beginning of the same text."""
        if (
            event.time - self._typed.at < (_PROGRAMS_PAUSE_S if self._typed.indented else BURST_S)
            and not self.read_only
        ):
            event.prevent_default()
            self._type(event.text, event.time, indented=True)

    def _type(self, text: str, at: float, indented: bool = False) -> None:
        """Writes what keys typed. The automatic indentation gives way to that of a text which a program types.

        at: when the key came, in seconds. indented: a program types it, with its own indentation.
        """
        typed, (start, end) = self._typed, sorted(self.selection)
        if not start == end == typed.end or at - typed.at > (_PROGRAMS_PAUSE_S if typed.indented else _PAUSE_S):
            typed = self._typed = Typed(start, start)
        before, was_indented = typed.text, typed.indented
        typed.follow(text, at, indented)
        if typed.indented:
            if not was_indented and self.get_text_range(typed.start, start).split() == before.split():
                start, text = typed.start, before + text
        elif text == "\n":
            text += text_lines.next_indent(self.document.get_line(end[0])[: end[1]], self.indent_width)
        elif text == "\t":
            text = " " * (self.indent_width - start[1] % self.indent_width)
        self._replace_via_keyboard(text, start, end)
        typed.end = self.cursor_location

    def action_delete_left(self) -> None:
        """Deletes to the left; within the indentation, one level at a time."""
        row, column = self.cursor_location
        before = self.document.get_line(row)[:column]
        if self.selection.is_empty and before and not before.strip(" "):
            self.delete((row, (column - 1) // self.indent_width * self.indent_width), (row, column))
        else:
            super().action_delete_left()

    def on_text_area_changed(self) -> None:
        shown = self.marks.words
        self.marks.follow(self.document.lines)
        if self.marks.words != shown:  # the edited line was drawn with its mark
            self.refresh()
        self.completion.follow()

    def on_text_area_selection_changed(self) -> None:
        self.completion.follow()

    def on_blur(self) -> None:
        self.completion.close()

    def complete(self) -> None:
        """Offers the names of the kit that fit at the cursor."""
        if self.read_only or not self.completion.open():
            self.app.notify(
                "No names to offer here. They come after a module of the kit, such as symm.", timeout=4, markup=False
            )

    def signature(self, room: int) -> str:
        """Returns the signature of the kit's name at the cursor or of the call around it, in `room` columns; or ""."""
        row, column = self.cursor_location
        name = name_at(self.document.lines, (row, column))
        return signature_words(name, room) if name is not None and self.is_code((row, max(column - 1, 0))) else ""
