"""The base of the panes in the result column of the kernel screen."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual.widget import Widget

if TYPE_CHECKING:
    from screens.kernel.kernel_session import RunUpdate


class RunPane(Widget):
    """Shows one side of a run. Its height and colours are in its own DEFAULT_CSS; the border comes from the screen.

    A subclass names this base last: Textual takes default styles from the first base alone. It can take the keyboard
    (`can_focus=True`), or names a widget in it that does as its `front`.
    """

    NAME: ClassVar[str]
    """The widget's id."""
    TITLE: ClassVar[str]
    """Stands on the border until the pane says otherwise."""
    LETTER: ClassVar[str]
    """Goes there when panes show their letters."""

    SHOWN_AFTER_FAILURE: ClassVar[bool] = True
    """Whether there is anything to see here of a kernel that failed; if not, the other panes get the room."""

    empty: bool = False
    """It has nothing to show, and takes no room."""
    rows: int = 0
    """Rows that it takes, with its border; of a pane whose height the result column does not set."""
    _latest: RunUpdate | None = None

    @property
    def front(self) -> Widget:
        """What takes the keyboard when the pane is gone to."""
        return self

    def show(self, update: RunUpdate) -> None:
        """Brings the pane up to what is known; it draws again only if it must. Called up to ten times a second."""
        raise NotImplementedError

    def take(self, update: RunUpdate) -> None:
        """Shows an update, and its state again when the pane's size changes: one that was hidden had no width."""
        self._latest = replace(update, new_run=False, lines=[])
        self.show(update)

    def on_resize(self) -> None:
        if self._latest is not None:
            self.show(self._latest)
