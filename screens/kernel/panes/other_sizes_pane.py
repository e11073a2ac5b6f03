"""Results at other sizes: one row per setting, and whether the kernel is faster there, too."""

from typing import ClassVar

from textual.content import Content

from arena.records.run_record import OtherSize
from sandbox.protocol.events import Setting
from screens import figures
from screens.kernel.other_sizes_run import OtherSizesUpdate
from screens.kernel.panes.run_pane import RunPane
from screens.kernel.run_update import RunUpdate
from screens.widgets.key_line import entitle
from screens.widgets.text_lines import PlainStatic, hanging

_FRAME = 2
_WIDE, _NARROW_COLUMNS = 50, 15
"""Cells of a pane that has room for wide columns, and columns of a result in a narrower one."""
_UNKNOWN_WIDTH = 100
"""Columns assumed until the pane is shown."""


def rows(update: OtherSizesUpdate, width: int) -> list[Content]:
    """The rows of each result and of the setting that is judged now, in `width` cells."""

    def row(result: Content, setting: Setting | OtherSize) -> list[Content]:
        return hanging(result, Content(figures.size_words(setting)), width, columns)

    columns = figures.RESULT_COLUMNS if width >= _WIDE else _NARROW_COLUMNS
    found = [line for other in update.found for line in row(figures.other_size_result(other, columns), other)]
    if update.progress is not None:
        longest = update.progress.most_s if update.phase == "time" else None
        doing = f"▸ {update.phase or 'starting'}" + (f", up to {longest:g} s" if longest else "")
        found += row(Content.styled(f"{doing:<{columns}}", "$accent"), update.progress.setting)
    elif update.ended and not found:
        found.append(Content.styled("No other legal setting was found.", "$muted"))
    return found


class OtherSizesPane(PlainStatic, RunPane, can_focus=True):
    """Takes no room until the kernel is judged at other sizes."""

    DEFAULT_CSS = """
    OtherSizesPane {
        height: auto;
    }
    """
    NAME: ClassVar[str] = "other-sizes"
    TITLE: ClassVar[str] = "Other sizes"
    LETTER: ClassVar[str] = "o"
    SHOWN_AFTER_FAILURE: ClassVar[bool] = False

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, classes="empty")
        self.empty = True

    def show(self, update: RunUpdate) -> None:
        found = rows(update.others, self.content_size.width or _UNKNOWN_WIDTH)
        self.empty = not found
        self.rows = len(found) + _FRAME if found else 0
        self.set_class(self.empty, "empty")
        entitle(self, subtitle=f"faster: {update.others.holds}" if update.others.holds else "")
        self.update_if_new(Content("\n").join(found))
