"""The user's kernels of one problem: open one, copy the one in the editor, rename it."""

from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from arena.errors import ArenaError
from arena.workspace.kernel_folder import listed_name
from arena.workspace.kernels import Workspace
from sandbox.protocol.kernel_files import Kernel
from screens.dialogs import Dialog, field
from screens.widgets.text_lines import PlainStatic


class VariantsDialog(Dialog[Path | None]):
    """Dismisses with the kernel to open: its file or folder."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+r", "rename", "rename the kernel in the editor", priority=True)
    ]

    def __init__(self, workspace: Workspace, path: Path, kernel: Kernel) -> None:
        """path, kernel: the file or folder of the kernel in the editor, and its texts there."""
        super().__init__()
        self._workspace, self._path, self._kernel = workspace, path, kernel
        self._found = workspace.variants(path)

    def compose(self) -> ComposeResult:
        with self.frame("Kernels", "enter opens · with a name: copies · ^r renames · esc"):
            marks = {self._path: "in the editor"}
            rows = ((f"{listed_name(path):<34} ", (marks.get(path, ""), "$accent")) for path in self._found)
            yield OptionList(*(Option(Content.assemble(*row)) for row in rows))
            yield field("new name", Input(placeholder="two-shot, or two-shot/ for a folder", compact=True), "below")
            yield PlainStatic("", id="report")

    def on_mount(self) -> None:
        kernels = self.query_one(OptionList)
        kernels.highlighted = self._found.index(self._path)
        (kernels if len(self._found) > 1 else self.query_one(Input)).focus()

    @on(OptionList.OptionSelected)
    def _open(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._found[event.option_index])

    @on(Input.Submitted)
    def _copy(self) -> None:
        try:
            new = self._workspace.copy(self._path, self._kernel, self.query_one(Input).value)
        except ArenaError as error:
            self.refuse(error.one_line)
        else:
            self.dismiss(new)

    def action_rename(self) -> None:
        try:
            new = self._workspace.rename(self._path, self.query_one(Input).value)
            self._workspace.save_draft(new, self._kernel.source)
        except ArenaError as error:
            self.refuse(error.one_line)
        else:
            self.dismiss(new)
