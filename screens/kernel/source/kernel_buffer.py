"""The kernel's text in the editor, and its file: opened, saved, kept as a draft, taken over from other programs."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from textual.timer import Timer

from arena.errors import ArenaError, UsageError
from arena.workspace.kernels import read_kernel
from arena.workspace.named_kernels import starter
from screens.kernel.kernel_session import KernelSession
from screens.widgets.editor import Editor

DRAFT_AFTER_S = 1.0


class KernelBuffer:
    """Holds the editor, because its text is still needed while the screen is unmounted."""

    def __init__(self, session: KernelSession, editor: Editor) -> None:
        self.session = session
        self.editor = editor
        self._draft_timer: Timer | None = None
        self._missed = False
        """Whether the last check found no file. Editors that replace a file may delete it for a moment."""
        self._draft_kept = False
        """Whether a draft of this editor is on disk. It is deleted once the text equals the file again."""

    async def open(self, over: str = "") -> str | None:
        """Reads the file into the editor, then replaces it by `over`, unsaved. Undo restores a draft, then the file.

        Returns:
            A draft that was typed but never saved, unless undo restores it.

        Raises:
            ArenaError: the file can be neither read nor written.
        """
        problem = self.session.problem
        text, draft = await asyncio.to_thread(self.session.open, starter(problem, "baseline"))
        self.editor.open_saved(text)
        if not over:
            return draft
        if draft is not None:
            await self.restore_draft(draft)
            self.editor.history.checkpoint()
        self.replace(over)
        self.editor.history.checkpoint()
        return None

    async def save(self, *, replace: bool = False) -> None:
        """Writes the file. replace: as in `KernelSession.save`.

        Raises:
            ArenaError: the file is unchanged.
        """
        text = self.editor.file_text
        await self.session.save(text, replace=replace)
        self._missed = False
        self.editor.mark_saved(text)

    def replace(self, text: str) -> None:
        """Replaces the text as if it were typed: it is unsaved, and undo restores the old text."""
        self.editor.replace(text, self.editor.document.start, self.editor.document.end)
        self.editor.move_cursor((0, 0))

    async def outside_saves(self) -> AsyncIterator[bool | ArenaError]:
        """Shows what other programs save into the file.

        Yields:
            For every such save, True if it replaced unsaved text, which undo restores.
            An error if the file is no kernel, or the unsaved text cannot be kept; the editor is then unchanged.
        """
        async for kernel in self.session.outside_saves():
            if isinstance(kernel, UsageError):
                yield kernel
                continue
            replaced = self.editor.dirty and kernel.text != self.editor.saved_text
            if replaced:
                try:
                    await self.session.keep(self.editor.file_text)
                except ArenaError as error:
                    yield error
                    continue
            if not self.editor.dirty or replaced:  # else only another file of the folder was saved
                self.editor.show_saved(kernel.text)
            yield replaced

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
        """Handles a change of the text: calls `keep`, which should call `keep_draft`, after a second without typing."""
        if self._draft_timer is not None:
            self._draft_timer.stop()
        if self.editor.dirty or self._draft_kept:
            self._draft_timer = self.editor.set_timer(DRAFT_AFTER_S, keep)

    async def keep_draft(self) -> None:
        """Keeps unsaved text, so that a crash loses nothing. Deletes the draft if the text equals the file again.

        Raises:
            ArenaError: the previous draft is unchanged.
        """
        if self.editor.dirty:
            self._draft_kept = True
            await self.session.save_draft(self.editor.file_text)
        elif self._draft_kept:
            self._draft_kept = False
            await asyncio.to_thread(self._forget_draft)

    def _forget_draft(self) -> None:
        self.session.services.workspace.discard_draft(self.session.path)

    async def restore_draft(self, draft: str) -> None:
        """Puts the draft into the editor, and keeps its text as a revision in case undo removes it."""
        self._draft_kept = True
        self.replace(draft)
        await self.session.keep(draft)

    async def discard_draft(self, draft: str) -> None:
        """Deletes the draft, and keeps its text as a revision."""
        await self.session.keep(draft)
        await asyncio.to_thread(self._forget_draft)

    def close(self) -> None:
        """Keeps unsaved text and ends `outside_saves`. Blocks for milliseconds.

        Raises:
            ArenaError: the text could not be kept.
        """
        self.session.stop_watching()
        if self.editor.dirty:
            self.session.services.workspace.save_draft(self.session.path, self.editor.file_text)
        elif self._draft_kept:
            self._forget_draft()
