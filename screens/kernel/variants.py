"""A list of names, to open, add, rename or delete one: the kernels of a problem, or the files of a kernel."""

from collections.abc import Callable, Mapping
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Key
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from arena.errors import ArenaError
from screens.dialogs import Dialog, T, field
from screens.dialogs.questions import Question
from screens.widgets.text_lines import PlainStatic


class NamesDialog(Dialog[T | None]):
    """Dismisses with what `answer` returns."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+r", "answer('rename')", "rename it", priority=True),
        Binding("ctrl+x", "delete", "delete it", priority=True),
    ]

    def __init__(
        self,
        title: str,
        names: Mapping[str, Content],
        here: str,
        example: str,
        answer: Callable[..., T],
        deletes: bool = False,
    ) -> None:
        """names: each with what is shown beside it. here: the one in the editor. example: of a new name.

        deletes: whether one can be deleted.

        answer: gets "open", "add", "rename" or "delete", the name under the cursor, and the one that was typed. It
        raises ArenaError if that cannot be done.
        """
        super().__init__()
        self._title, self._here, self._example, self._do = title, here, example, answer
        self._names, self._beside = [*names], names
        self._deletes = "^x deletes · " * deletes

    def compose(self) -> ComposeResult:
        with self.frame(self._title, f"enter opens or adds · ^r renames · {self._deletes}esc"):
            width = max(map(len, self._names), default=0)
            marks = {self._here: ("▸ ", "$accent")}
            rows = ((marks.get(name, "  "), f"{name:<{width}}  ", self._beside[name]) for name in self._names)
            yield OptionList(*(Option(Content.assemble(*row)) for row in rows))
            yield field("new name", Input(placeholder=self._example, compact=True, select_on_focus=False), "below")
            yield PlainStatic("", id="report")

    def on_mount(self) -> None:
        names = self.query_one(OptionList)
        names.display = bool(self._names)
        names.highlighted = self._names.index(self._here) if self._here in self._names else 0
        (names if len(self._names) > 1 or self._here in self._names[1:] else self.query_one(Input)).focus()

    def on_key(self, event: Key) -> None:
        """Types letters into the field, and goes from the list's end to the field and back."""
        names, typed = self.query_one(OptionList), self.query_one(Input)
        if event.key == "up" and typed.has_focus and names.display:
            names.focus()
        elif event.key == "down" and names.has_focus and names.highlighted == len(self._names) - 1:
            typed.focus()
        elif names.has_focus and event.is_printable and event.key not in self.active_bindings:
            typed.focus()
            typed.insert_text_at_cursor(event.character or "")
        else:
            return
        event.stop()

    @on(OptionList.OptionSelected)
    def _open(self) -> None:
        self.action_answer("open")

    @on(Input.Submitted)
    def _add(self, event: Input.Submitted) -> None:
        if (name := event.value.strip()) in self._names:
            self.query_one(OptionList).highlighted = self._names.index(name)
        self.action_answer("open" if name in self._names else "add")

    def action_answer(self, what: str) -> None:
        """Does it, or shows why it cannot be done."""
        row, typed = self.query_one(OptionList).highlighted, self.query_one(Input).value.strip()
        if what == "rename" and not typed:
            self.refuse("type the new name first")
            return
        try:
            self.dismiss(self._do(what, self._names[row] if row is not None else "", typed))
        except ArenaError as error:
            self.refuse(error.one_line)

    def action_delete(self) -> None:
        """Asks, and deletes what is under the cursor."""
        if self._deletes and (row := self.query_one(OptionList).highlighted) is not None:
            question = Question(f"Delete {self._names[row]}?", "The history keeps its text.", "delete it", "keep it")
            self.app.push_screen(question, lambda sure: self.action_answer("delete") if sure else None)
