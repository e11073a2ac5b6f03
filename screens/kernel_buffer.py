"""A kernel's files, and their editors: opened, saved, kept as drafts, taken over from other programs."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

from textual.timer import Timer

from arena.errors import ArenaError, UsageError
from arena.paths import writing
from arena.workspace.kernel_folder import main_file, texts_of, write_folder
from arena.workspace.kernels import KernelFile, Workspace, read_kernel
from arena.workspace.named_kernels import starter
from arena.workspace.watcher import KernelWatcher
from problems.specification import Problem
from sandbox.protocol.kernel_files import MAIN, Kernel
from screens.base import BaseScreen
from screens.widgets.editor import Editor

DRAFT_AFTER_S = 1.0


class OpenKernel:
    """One kernel of one problem in its file or folder, as an editor has it.

    An operation that cannot be done raises ArenaError: files are unchanged then.
    """

    def __init__(self, workspace: Workspace, problem: Problem, path: Path) -> None:
        self.workspace = workspace
        self.problem = problem
        self.path = path
        self.kernel = Kernel("")
        """The kernel as its file or folder was last read or written."""
        self._in_folder = False
        """Whether the kernel is a folder. It is written as a folder again if it was deleted."""
        self._watcher: KernelWatcher | None = None

    def open(self, starter: str) -> str:
        """Returns the text of the kernel file; writes `starter` if there is none. Blocks for milliseconds."""
        if not self.path.exists():
            draft = self.workspace.draft(self.path)
            self.workspace.save(self.path, starter)
            if draft is not None:
                self.workspace.save_draft(self.path, draft)  # a save discards it
        text = self.read()
        self.workspace.note_open(self.problem, self.path)
        self.workspace.keep_revision(text, self.kernel.files, of=self.path)
        return text

    def read(self) -> str:
        """Reads the kernel and watches it from now on. Returns its text. Blocks for milliseconds."""
        kernel = read_kernel(self.path)
        self.kernel, self._in_folder = kernel.kernel, self.path.is_dir()
        self._watcher = KernelWatcher(self.path, kernel.sha256)
        return kernel.text

    @property
    def file_exists(self) -> bool:
        """Whether the kernel's file, or the kernel.py of its folder, exists."""
        return main_file(self.path).is_file()

    async def readable(self) -> None:
        """Returns once the kernel's file or folder can be read."""
        self._watcher = KernelWatcher(self.path)
        async for save in self._watcher:
            if isinstance(save, KernelFile):
                self._watcher.stop()

    async def save(self, text: str, name: str = MAIN, *, replace: bool = False) -> None:
        """Writes a file of the kernel. replace: overwrites even one that cannot be read as text; a copy of it is kept."""
        if not replace and self.file_exists:
            await self.read_again()
        kernel = self.kernel.with_text(text, name)
        if self._watcher is not None:
            self._watcher.wrote(kernel.sha256)
        if self._in_folder and not self.path.exists():
            with writing(self.path.parent):
                await asyncio.to_thread(write_folder, self.path, kernel)
        await asyncio.to_thread(self.workspace.save, self.path, text, name)
        self.kernel = kernel

    async def read_again(self) -> None:
        """Reads the kernel again: a file of its folder may have changed a moment ago."""
        self.kernel = (await asyncio.to_thread(read_kernel, self.path)).kernel

    def draft_path(self, name: str) -> Path:
        """The path by which the workspace knows the draft of a file of the kernel."""
        return self.path if name == MAIN else self.path / name

    async def keep(self, kernel: Kernel) -> None:
        """Keeps a kernel as a revision before it is replaced in the editor."""
        await asyncio.to_thread(self.workspace.keep_revision, kernel.source, kernel.files, self.path)

    async def outside_saves(self) -> AsyncIterator[KernelFile | UsageError]:
        """Yields every kernel that another program saves into the file or folder; an error if it is no kernel."""
        assert self._watcher is not None, "`read` comes first"
        async for save in self._watcher:
            if isinstance(save, KernelFile):
                self.kernel = save.kernel
                with suppress(ArenaError):  # a later save keeps it, or reports the error
                    await self.keep(save.kernel)
            else:
                with suppress(OSError):  # a later save reports the error
                    await asyncio.to_thread(self.workspace.keep_file, self.path)
            yield save

    def stop_watching(self) -> None:
        """Ends `outside_saves`."""
        if self._watcher is not None:
            self._watcher.stop()


class KernelBuffer:
    """Holds the editors, because their texts are still needed while the screen is unmounted. Raises as `OpenKernel`."""

    def __init__(self, session: OpenKernel, editor: Editor) -> None:
        self.session = session
        self._workspace = session.workspace
        self.editor = editor
        """That of kernel.py."""
        self.editors = {MAIN: editor}
        """Those of all files that were opened, by their path in the kernel's folder."""
        self._opened = 0
        self._draft_timer: Timer | None = None
        self._missed = False
        """Whether the last check found no file. Editors that replace a file may delete it for a moment."""
        self._drafts: dict[str, str] = {}
        """The text that was kept of a file. Its draft is deleted once the text equals the file again."""

    @property
    def kernel(self) -> Kernel:
        """The kernel as it is in the editors; files that are not open, as they were last read."""
        typed = {name: each.file_text.encode() for name, each in self._unsaved().items() if name != MAIN}
        return Kernel(self.editor.file_text, {**self.session.kernel.files, **typed})

    @property
    def dirty(self) -> bool:
        """Whether the text of a file is unsaved."""
        return bool(self._unsaved())

    def _unsaved(self) -> dict[str, Editor]:
        return {name: editor for name, editor in self.editors.items() if editor.dirty}

    async def current(self) -> Kernel:
        """The same, after reading the folder: a file in it may have changed a moment ago."""
        if self.session.path.is_dir():
            await self.session.read_again()
        return self.kernel

    async def open(self, over: str = "") -> None:
        """Reads the file into the editor, then replaces it by `over`, unsaved. Undo restores a draft, then the file."""
        self.editor.open_saved(await asyncio.to_thread(self.session.open, starter(self.session.problem, "baseline")))
        if not over:
            return
        if (draft := self.draft(MAIN)) is not None:
            await self.settle_draft(draft, restore=True)
            self.editor.history.checkpoint()
        self.replace(over)
        self.editor.history.checkpoint()

    def open_file(self, name: str) -> Editor:
        """The editor of one of the other files of the kernel's folder. It is read-only if the file is no text."""
        if name not in self.editors:
            text = texts_of(self.session.kernel)[name]
            self._opened += 1
            editor = self.editors[name] = Editor(name=name, id=f"file-{self._opened}")
            editor.read_only = self.editor.read_only or self.session.kernel.files[name] != text.encode()
            editor.open_saved(text)
        return self.editors[name]

    async def save(self, *, replace: bool = False) -> None:
        """Writes every file whose text is unsaved, or kernel.py. replace: as in `OpenKernel.save`."""
        for name, editor in (self._unsaved() or {MAIN: self.editor}).items():
            text = editor.file_text
            await self.session.save(text, name, replace=replace)
            editor.mark_saved(text)
        self._missed = False

    async def move(self, name: str, new: str) -> None:
        """Renames a file of the kernel's folder, or adds it if it has this name already; without a new name, deletes it.

        Saves unsaved texts first. The history keeps a file that is deleted.
        """
        if name not in texts_of(self.kernel):
            await self.session.save("", name)
        elif name != new:
            await self.session.keep(self.kernel)
            if new and self.dirty:
                await self.save()
            await asyncio.to_thread(self._workspace.move_file, self.session.path, name, new)
            self.editors.pop(name, None)
            self._drafts.pop(name, None)
            await self.session.read_again()

    def replace(self, text: str, name: str = MAIN) -> None:
        """Replaces the text as if it were typed: it is unsaved, and undo restores the old text."""
        editor = self.editors[name]
        editor.replace(text, editor.document.start, editor.document.end)
        editor.move_cursor((0, 0))

    async def outside_saves(self, screen: BaseScreen) -> AsyncIterator[None]:
        """Shows what other programs save into the files. The editor of a deleted file goes, if its text was saved.

        Yields after every save that is shown. The user reads that one replaced unsaved text, which undo restores, or why
        one is not shown: the file is no kernel, or the unsaved text cannot be kept.
        """
        async for kernel in self.session.outside_saves():
            if isinstance(kernel, UsageError):
                screen.complain(f"{kernel.one_line}. The editor keeps its text")
                continue
            texts = texts_of(kernel.kernel)
            replaced = {
                name for name, each in self._unsaved().items() if texts.get(name, each.saved_text) != each.saved_text
            }
            if replaced:
                try:
                    await self.session.keep(self.kernel)
                except ArenaError as error:
                    screen.complain(f"{error.one_line}. The editor keeps its text")
                    continue
                screen.say("The file changed on disk. ctrl+z brings your unsaved text back.")
            for name, editor in list(self.editors.items()):
                if name in replaced or (name in texts and not editor.dirty):
                    editor.show_saved(texts[name])
                elif name in texts:  # another file was saved, or this one was deleted and is back
                    editor.mark_saved(texts[name])
                elif editor.dirty:
                    editor.mark_gone()
                else:
                    del self.editors[name]
            yield

    def notices_deletion(self) -> bool:
        """Checks whether the file still exists. Call it every second.

        Returns:
            True once, when two checks in a row found no file. Its text counts as unsaved from then on.
        """
        missing, before = not self.session.file_exists, self._missed
        self._missed = missing
        if self.editor.gone and not missing:
            with suppress(ArenaError):  # another text is an outside save
                if read_kernel(self.session.path).text == self.editor.saved_text:
                    self.editor.mark_saved(self.editor.saved_text)
        if not (missing and before) or self.editor.gone:
            return False
        self.editor.mark_gone()
        return True

    # --- drafts --------------------------------------------------------------------------------------------

    def edited(self, keep: Callable[[], object]) -> None:
        """Handles a change of a text: calls `keep`, which should call `keep_draft`, after a second without typing."""
        if self._draft_timer is not None:
            self._draft_timer.stop()
        if self.dirty or self._drafts:
            self._draft_timer = self.editor.set_timer(DRAFT_AFTER_S, keep)

    async def keep_draft(self) -> None:
        """Does what `keep_drafts` does, in a thread."""
        await asyncio.to_thread(self.keep_drafts, {name: each.file_text for name, each in self._unsaved().items()})

    def keep_drafts(self, unsaved: dict[str, str] | None = None) -> None:
        """Keeps unsaved texts, so that a crash loses nothing. Deletes the draft of a text that equals its file again."""
        if unsaved is None:
            unsaved = {name: each.file_text for name, each in self._unsaved().items()}
        for name in self._drafts.keys() - unsaved.keys():
            self._workspace.discard_draft(self.session.draft_path(name))
            self._drafts.pop(name, None)  # a thread may delete it at the same time
        for name, text in unsaved.items():
            path = self.session.draft_path(name)
            before, kept = self._workspace.draft(path), self._drafts.get(name)
            if text != kept or before is None:  # else another draft may be a duel's newer text
                if before not in (None, text, kept):
                    self._workspace.keep_revision(before, of=path)  # typed on another screen
                self._workspace.save_draft(path, text)
                self._drafts[name] = text

    def draft(self, name: str) -> str | None:
        """A text of a file that was typed but never saved, and is not in the editor."""
        return None if name in self._drafts else self._workspace.draft(self.session.draft_path(name))

    async def settle_draft(self, draft: str, name: str = MAIN, *, restore: bool | None) -> None:
        """Puts the draft into the editor, or deletes it, or (None) leaves it until the next draft overwrites it.

        Its text is also kept as a revision, in case undo removes it.
        """
        if restore:
            self._drafts[name] = draft
            self.replace(draft, name)
        await self.session.keep(self.session.kernel.with_text(draft, name))
        if restore is False:
            await asyncio.to_thread(self._workspace.discard_draft, self.session.draft_path(name))
