"""Saves a model's kernels: each as a revision, the best one in the model's own file."""

from collections.abc import Sequence
from pathlib import Path

from arena.players.attempts import Attempt, best_of
from arena.workspace.kernels import Workspace
from problems.specification import Problem


def keep_revisions(workspace: Workspace, attempts: Sequence[Attempt]) -> Attempt | None:
    """Saves all kernels as revisions. Returns the best one; the first if none was judged; None if there is none.

    Raises:
        FolderUnwritable: the workspace cannot be written.
    """
    written = [attempt for attempt in attempts if attempt.answer.outcome == "kernel"]
    for attempt in written:
        workspace.keep_revision(attempt.answer.source, attempt.answer.files)
    return best_of(attempts) or (written[0] if written else None)


def save_best(workspace: Workspace, problem: Problem, player: str, best: Attempt) -> Path:
    """Writes a kernel to the player's file in the workspace. A kernel of several files becomes a folder beside it.

    Raises:
        FolderUnwritable: the workspace cannot be written; the old file is unchanged.
    """
    path = workspace.kernel_path(problem, player)
    if best.answer.files:
        return workspace.put_beside(path, best.answer.kernel)
    workspace.save(path, best.answer.source)
    return path
