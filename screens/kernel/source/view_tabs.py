"""The tabs of the views: click one, or press the view key to go to the next."""

from dataclasses import dataclass

from rich.cells import cell_len
from textual.content import Content
from textual.events import Click
from textual.geometry import Offset
from textual.message import Message

from screens.widgets.text_lines import PlainStatic


class ViewTabs(PlainStatic):
    """The names of the views; a sign and a colour mark the current one."""

    @dataclass
    class Chosen(Message):
        """A name was clicked."""

        name: str

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._names: tuple[str, ...] = ()
        self._marks: dict[str, str] = {}
        self._current = ""
        self._note = ""
        self._parts: list[tuple[str, str]] = []

    def show(self, names: tuple[str, ...], current: str, marks: dict[str, str], note: str = "") -> None:
        """Shows the names. marks: signs behind names, such as the dot of unsaved text. note: last, if it fits."""
        if (names, current, marks, note) == (self._names, self._current, self._marks, self._note):
            return
        self._names, self._current, self._marks, self._note = names, current, dict(marks), note
        parts = [(self._label(name), "bold $accent" if name == current else "$muted") for name in names]
        self._parts = parts
        self._draw()

    def _draw(self) -> None:
        words = f"  {self._note}"
        needed = sum(cell_len(text) for text, _ in self._parts) + cell_len(words)
        shown = words if needed <= self.content_size.width else ""
        self.update(Content.assemble(*self._parts, (shown, "$muted")), layout=False)

    def on_resize(self) -> None:
        """The note may fit now, or no longer."""
        self._draw()

    def letter_at(self, name: str) -> Offset | None:
        """Returns the screen position of a name's jump letter, in front of the name; None without a tab."""
        column = self._column(name)
        return self.region.offset + Offset(column - 1, 0) if column is not None and self.region.area else None

    def _column(self, name: str) -> int | None:
        if name not in self._names:
            return None
        before = self._names[: self._names.index(name)]
        return sum(cell_len(self._label(each)) for each in before)

    def _label(self, name: str) -> str:
        mark = self._marks.get(name, "")
        return f" {'▸' if name == self._current else ' '}{name}{mark} "

    def on_click(self, event: Click) -> None:
        x = event.x
        for name in self._names:
            x -= len(self._label(name))
            if x < 0:
                self.post_message(self.Chosen(name))
                return
