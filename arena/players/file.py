"""The player of kernel files: a folder with one kernel per problem, or a single kernel for all problems."""

import asyncio
import os
import stat
from pathlib import Path

from arena.errors import KernelUnreadable, UsageError
from arena.players.player import KernelAccess, Player, PlayerName, Submission, Task
from arena.workspace.kernels import KernelFile, read_kernel
from arena.workspace.watcher import KernelWatcher
from problems.specification import Problem
from sandbox.protocol.kernel_files import MAIN

ABSENT = "is not there"


class FilePlayer(Player):
    """Submits a kernel from a file or a folder. If the task has a clock, every save is submitted.

    Of the saves during an evaluation, only the newest is submitted, after the evaluation or when the play is cancelled.

    A folder of kernels has STEM.py, SLUG.py or ID.py, or a subfolder of that name with a kernel.py. A folder that has a
    kernel.py itself is one kernel.
    """

    fixed = True
    submits_first = True
    """Whether the kernel at the start of the clock is submitted. If not, only later saves are submitted."""

    def __init__(self, name: PlayerName, path: Path) -> None:
        """
        Raises:
            UsageError: there is no such file or folder, or it cannot be read.
        """
        self.name = name
        self._path = path.expanduser().absolute()
        self.kernel_path = str(self._path)
        if not self._path.exists():
            raise UsageError(f"there is no file or folder {self._path}", "name the folder of your kernels")
        if not os.access(self._path, os.R_OK | (os.X_OK if self._path.is_dir() else 0)):
            raise UsageError(f"{self._path} cannot be read: Permission denied", "check its permissions")

    def check(self, task: Task) -> None:
        """
        Raises:
            UsageError, KernelUnreadable: as `play`.
        """
        read_kernel(self._file(task.problem))

    async def play(self, task: Task, access: KernelAccess) -> Submission:
        """
        Raises:
            UsageError: the folder has no kernel for this problem.
            KernelUnreadable: the folder has a kernel, but it cannot be read.
        """
        path = self._file(task.problem)
        kernel = await asyncio.to_thread(_read, path)
        if access.clocked:
            watcher = KernelWatcher(path, kernel.sha256)
            try:
                if self.submits_first:
                    await access.judge(kernel.text, kernel.name, kernel.files)
                async for save in watcher:
                    if isinstance(save, UsageError):
                        access.warn(f"not submitted: {save.message}")
                    else:
                        kernel = save
                        await access.judge(kernel.text, kernel.name, kernel.files)
            except asyncio.CancelledError:
                _leave_newest(path, kernel, access)
                raise
            finally:
                watcher.stop()
        return Submission(kernel.text, kernel.name, files=kernel.files)

    def _file(self, problem: Problem) -> Path:
        folder = self._path
        if folder.is_file():
            return folder
        names = (problem.stem, problem.slug, str(problem.id), f"{problem.id:02d}")
        places = [place for name in names for place in (folder / f"{name}.py", folder / name / MAIN)] + [folder / MAIN]
        wrong = {place: why for place in places if (why := _unreadable(place)) != ABSENT}
        if found := next((place for place, why in wrong.items() if not why), None):
            return found.parent if found.name == MAIN else found
        for place, why in wrong.items():
            raise KernelUnreadable(f"{place} {why}", "replace it by the kernel's Python file")
        raise UsageError(f"{folder} has no kernel for {problem.stem}", f"it would be {problem.stem}.py")


def _leave_newest(path: Path, known: KernelFile, access: KernelAccess) -> None:
    """Passes a save that was not submitted yet to `access.interrupted`. An empty file is an unfinished save."""
    try:
        newest = read_kernel(path)
    except UsageError as error:
        access.warn(f"not submitted: {error.message}")
        return
    if newest.text and newest.sha256 != known.sha256:
        access.interrupted(Submission(newest.text, newest.name, files=newest.files))


def _unreadable(path: Path) -> str:
    """Returns why no kernel can be read from a path: empty if it is a regular file, ABSENT if it does not exist."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "is a link to nothing" if path.is_symlink() else ABSENT
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return "" if stat.S_ISREG(mode) else "is no file with text"


def _read(path: Path) -> KernelFile:
    try:
        return read_kernel(path)
    except UsageError as error:
        raise KernelUnreadable(error.message, error.advice) from None
