"""The base of the panes in the result column of the kernel screen."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual.widget import Widget

if TYPE_CHECKING:
    from screens.kernel.run_update import RunUpdate


class RunPane(Widget):
    """Shows one part of a run. Its height and colours are in its own DEFAULT_CSS; the border comes from the screen.

    A subclass lists this base last: Textual reads only the first base's default styles. It takes the focus itself
    (`can_focus=True`), or returns a child that does as its `front`.
    """

    NAME: ClassVar[str]
    """The widget's id."""
    TITLE: ClassVar[str]
    """The title on the border until the pane changes it."""
    LETTER: ClassVar[str]
    """The jump letter of the pane."""

    SHOWN_AFTER_FAILURE: ClassVar[bool] = True
    """Whether the pane is shown for a kernel that failed; if not, the other panes get its room."""

    empty: bool = False
    """Whether the pane has nothing to show, and takes no room."""
    rows: int = 0
    """Rows of the pane with its border, if the result column does not set its height; else 0."""
    _latest: RunUpdate | None = None

    @property
    def front(self) -> Widget:
        """The widget that takes the focus of the pane."""
        return self

    def show(self, update: RunUpdate) -> None:
        """Updates the pane, which redraws only if something changed. Called up to ten times a second."""
        raise NotImplementedError

    def take(self, update: RunUpdate) -> None:
        """Shows an update, and shows it again after a resize, because a hidden pane has no width."""
        self._latest = replace(update, new_run=False, lines=[])
        self.show(update)

    def on_resize(self) -> None:
        if self._latest is not None:
            self.show(self._latest)
