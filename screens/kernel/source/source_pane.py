"""The left column of the kernel screen: the editor, or in its place the baseline, the diff or the card."""

from functools import partial
from pathlib import Path

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widget import Widget
from textual.widgets import ContentSwitcher

from arena.workspace.kernel_folder import texts_of
from problems.specification import Problem
from sandbox.protocol.kernel_files import MAIN
from screens.kernel_buffer import KernelBuffer
from screens.widgets.editor import Editor
from screens.widgets.key_line import FRAME, TitledPane, entitle
from screens.widgets.source import Source
from screens.widgets.source_bars import SourceBar, open_bar
from screens.widgets.text_lines import FittedText, markdown_rows

KERNEL, BASELINE, DIFF, CARD = "kernel", "baseline", "diff", "card"
"""The names of the views, and the ids of their widgets. That of the kernel is the editor."""
VIEW_LETTERS = {KERNEL: "k", BASELINE: "b", DIFF: "d", CARD: "a"}
"""The jump letters of the views, in the order of their tabs."""
BASELINE_FILE = "baseline.py"


def shortened_path(path: Path, cells: int) -> str:
    """Returns the path with ~ for the home folder; if it is too long, only its end."""
    text = str(path)
    home = str(Path.home())
    if text.startswith(f"{home}/"):
        text = f"~{text[len(home) :]}"
    return text if len(text) <= cells else f"…{text[-max(cells - 1, 0) :]}"


class SourcePane(TitledPane):
    """Shows one view at a time."""

    def __init__(self, buffer: KernelBuffer, problem: Problem, file: Path, *, id: str | None = None) -> None:
        """`file` is the path of the kernel file."""
        super().__init__(id=id, classes="pane")
        self.buffer, self.problem, self.file = buffer, problem, file

    def compose(self) -> ComposeResult:
        with ContentSwitcher(initial=KERNEL, id="sources"):
            yield self.buffer.editor
            yield Source(id=BASELINE)
            yield Source(id=DIFF)
            yield VerticalScroll(id=CARD)

    async def open(self, kind: type[SourceBar]) -> None:
        """Opens a bar for the text in front, and closes another bar. Does nothing if the view has no text."""
        source = self.query_one("#sources", ContentSwitcher).visible_content
        if isinstance(source, Source):
            await open_bar(self, source, kind)

    def bring_up(self, name: str) -> Widget:
        """Shows one of VIEW_LETTERS, or one of the other files of the kernel's folder. Returns its widget."""
        for bar in self.query(SourceBar):
            bar.close()
        switcher = self.query_one("#sources", ContentSwitcher)
        if name not in VIEW_LETTERS:
            editor = self.buffer.open_file(name)
            if not editor.is_attached:
                switcher.mount(editor)
            name = str(editor.id)
        switcher.current = name
        self.follow_editor()
        return self.query_one(f"#{name}")

    def follow_editor(self) -> None:
        """Updates the view in front to the editors' texts; removes the editors of deleted files."""
        view = self.query_one("#sources", ContentSwitcher).visible_content
        baseline = self.problem.baseline_source
        if isinstance(view, Source) and view.id == BASELINE and view.text != baseline:
            view.text = baseline
        elif isinstance(view, Source) and view.id == DIFF:
            first = BASELINE if self.buffer.session.kernel.files else BASELINE_FILE
            view.compare({MAIN: baseline}, texts_of(self.buffer.kernel), first, self.buffer.session.path.name)
        elif isinstance(view, VerticalScroll) and not view.children:
            view.mount(FittedText(partial(markdown_rows, self.problem.card)))
        for editor in self.query(Editor):
            if editor is not view and editor not in self.buffer.editors.values():
                editor.remove()

    def show_title(self, copy_key: str, mark: str) -> None:
        """Shows the file, the cursor position and the signature there, or the title of another view.

        copy_key: the key that copies the path. mark: follows the file name.
        """
        view = self.query_one("#sources", ContentSwitcher).visible_content
        assert view is not None
        if not isinstance(view, Editor):
            entitle(self, BASELINE_FILE if view.id == BASELINE else str(view.id), "")
            return
        row, column = view.cursor_location
        place = f"{row + 1}:{column + 1}  {view.mode}".rstrip()
        signature = view.signature(self.size.width - FRAME)
        file, title, beside = self.file, self.file.name, len(self.buffer.session.kernel.files)
        if view is not self.buffer.editor:
            file, title = self.buffer.session.path / str(view.name), str(view.name)
        elif beside:
            title += f" + {beside} file{'s' * (beside > 1)}"
        entitle(self, f"{title}{mark}  {place}", signature or self._path_words(file, copy_key))

    def _path_words(self, file: Path, copy_key: str) -> str:
        hint = f" · {copy_key} copies"
        room = self.size.width - FRAME
        path = shortened_path(file, room - len(hint))
        return f"{path}{hint}" if room > 40 else shortened_path(file, room)
