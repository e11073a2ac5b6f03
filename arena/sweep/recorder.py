"""Records the results of a sweep's cells in its journal, one line after another, and in its progress."""

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine

from arena.models.budget import Spent
from arena.sweep import records
from arena.sweep.journal import SweepJournal
from arena.sweep.progress import Listener, SweepProgress


class Recorder:
    """Journals and counts results, also if the calling task is cancelled, because they are paid for."""

    def __init__(self, journal: SweepJournal, progress: SweepProgress, listener: Listener) -> None:
        self._journal = journal
        self._progress = progress
        self._listener = listener
        self._turn = asyncio.Lock()
        self.harness_errors: Counter[str] = Counter()
        """Harness errors in a row, by worker."""
        self.last_error = ""
        """The newest harness error."""

    async def unanswered(self, cell: records.Cell, why: str, spent: Spent) -> None:
        """Leaves the cell without a result, and journals what was spent on it."""
        self._progress.unanswered += 1
        if spent.tokens:
            await self.append(records.Unanswered(at=time.time(), cell=cell, why=why, spent=spent))

    async def judged(self, result: records.CellResult) -> None:
        """Journals and counts the result of a run."""
        await _finish(self._judged(result))

    async def _judged(self, result: records.CellResult) -> None:
        await self.append(result)
        progress = self._progress
        progress.judged += 1
        progress.done += result.final
        progress.verdicts[result.verdict] += 1
        self._listener.judged(result)
        if result.final:
            self.harness_errors[result.worker] = 0
        else:
            self.harness_errors[result.worker] += 1
            self.last_error = result.detail

    async def append(self, line: records.Written | records.Unanswered | records.CellResult) -> None:
        """Journals a line."""
        await _finish(self._append_in_turn(line))

    async def _append_in_turn(self, line: records.Written | records.Unanswered | records.CellResult) -> None:
        async with self._turn:
            await asyncio.to_thread(self._journal.append, line)


async def _finish(recording: Coroutine[None, None, None]) -> None:
    """Finishes the recording, also if this task is cancelled, because the result is paid for."""
    task = asyncio.ensure_future(recording)
    try:
        await asyncio.shield(task)
    finally:
        await task
