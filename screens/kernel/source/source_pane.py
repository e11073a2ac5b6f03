"""The left column of the kernel screen: the editor, or in its place the baseline, the diff or the card."""

from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widget import Widget
from textual.widgets import ContentSwitcher

from arena.workspace.kernel_folder import texts_of
from problems.specification import Problem
from sandbox.protocol.kernel_files import MAIN, Kernel
from screens.kernel.source.kernel_buffer import KernelBuffer
from screens.widgets.editor import Editor
from screens.widgets.key_line import FRAME, TitledPane, entitle
from screens.widgets.source import Source
from screens.widgets.source_bars import SourceBar, open_bar

KERNEL = "kernel"
"""Id of the editor, and the name of its view."""


class SourceView(Widget):
    """A view in place of the editor. Subclasses list this base last: Textual reads only the first's default styles."""

    NAME: ClassVar[str]
    """The widget's id, and the name on its tab."""
    TITLE: ClassVar[str]
    """The title on the border."""
    LETTER: ClassVar[str]
    """The jump letter of the view."""

    def bring_up(self, problem: Problem, kernel: Kernel, file_name: str) -> None:
        """Updates the view when it comes to the front. kernel: as in the editors."""
        raise NotImplementedError


class BaselineView(Source, SourceView):
    """The baseline's source."""

    NAME: ClassVar[str] = "baseline"
    TITLE: ClassVar[str] = "baseline.py"
    LETTER: ClassVar[str] = "b"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(name=self.TITLE, id=id)

    def bring_up(self, problem: Problem, kernel: Kernel, file_name: str) -> None:
        if self.text != problem.baseline_source:
            self.text = problem.baseline_source


class KernelDiff(Source, SourceView):
    """The diff from the baseline to the kernel."""

    NAME: ClassVar[str] = "diff"
    TITLE: ClassVar[str] = "diff"
    LETTER: ClassVar[str] = "d"

    def bring_up(self, problem: Problem, kernel: Kernel, file_name: str) -> None:
        self.compare({MAIN: problem.baseline_source}, texts_of(kernel), BaselineView.TITLE, file_name)


class CardView(VerticalScroll, SourceView):
    """The problem's card."""

    NAME: ClassVar[str] = "card"
    TITLE: ClassVar[str] = "card"
    LETTER: ClassVar[str] = "a"

    def bring_up(self, problem: Problem, kernel: Kernel, file_name: str) -> None:
        if not self.children:
            from screens.dialogs import Page  # slow to import: only when a card is opened

            self.mount(Page(problem.card))


VIEWS: tuple[type[SourceView], ...] = (BaselineView, KernelDiff, CardView)
"""In the order of their tabs, after the editor's. To add a view: write its class, and list it here."""
VIEW_NAMES = (KERNEL, *(view.NAME for view in VIEWS))
VIEW_LETTERS = {KERNEL: "k", **{view.NAME: view.LETTER for view in VIEWS}}


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
        self._copy_key, self._mark = "", ""

    def compose(self) -> ComposeResult:
        with ContentSwitcher(initial=KERNEL, id="sources"):
            yield self.buffer.editor
            for make in VIEWS:
                yield make(id=make.NAME)

    async def open(self, kind: type[SourceBar]) -> None:
        """Opens a bar for the text in front, and closes another bar. Does nothing if the view has no text."""
        source = self.query_one("#sources", ContentSwitcher).visible_content
        if isinstance(source, Source):
            await open_bar(self, source, kind)

    def bring_up(self, name: str) -> Widget:
        """Shows one of VIEW_NAMES, or one of the other files of the kernel's folder. Returns its widget."""
        for bar in self.query(SourceBar):
            bar.close()
        switcher = self.query_one("#sources", ContentSwitcher)
        if name not in VIEW_NAMES:
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
        if isinstance(view, SourceView):
            view.bring_up(self.problem, self.buffer.kernel, self.file.name)
        for editor in self.query(Editor):
            if editor is not view and editor not in self.buffer.editors.values():
                editor.remove()

    def on_resize(self) -> None:
        """Fits the path to the new width."""
        if self._copy_key:
            self.show_title(self._copy_key, self._mark)

    def show_title(self, copy_key: str, mark: str = "") -> None:
        """Shows the file, the cursor position and the signature there, or the title of another view.

        copy_key: the key that copies the path. mark: follows the file name.
        """
        self._copy_key, self._mark = copy_key, mark
        view = self.query_one("#sources", ContentSwitcher).visible_content
        if isinstance(view, SourceView):
            entitle(self, view.TITLE, "")
            return
        assert isinstance(view, Editor)
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
