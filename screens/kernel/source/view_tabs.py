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

    def show(self, names: tuple[str, ...], current: str, marks: dict[str, str], note: str = "") -> None:
        """Shows the names. marks: signs behind names, such as the dot of unsaved text. note: last, if it fits."""
        if (names, current, marks, note) == (self._names, self._current, self._marks, self._note):
            return
        self._names, self._current, self._marks, self._note = names, current, dict(marks), note
        self.on_resize()

    def on_resize(self) -> None:
        """Draws the names; the note may fit now, or no longer."""
        colours = {self._current: "bold $accent"}
        names = Content.assemble(*((self._label(name), colours.get(name, "$muted")) for name in self._names))
        note = Content.styled(f"  {self._note}", "$muted")
        fits = names.cell_length + note.cell_length <= self.content_size.width
        self.update(names + note if fits else names, layout=False)

    def letter_at(self, name: str) -> Offset | None:
        """Returns the screen position of a name's jump letter, in front of the name; None without a tab."""
        if name not in self._names or not self.region.area:
            return None
        before = self._names[: self._names.index(name)]
        return self.region.offset + Offset(sum(cell_len(self._label(each)) for each in before) - 1, 0)

    def _label(self, name: str) -> str:
        return f" {'▸' if name == self._current else ' '}{name}{self._marks.get(name, '')} "

    def on_click(self, event: Click) -> None:
        x = event.x
        for name in self._names:
            x -= len(self._label(name))
            if x < 0:
                self.post_message(self.Chosen(name))
                return
