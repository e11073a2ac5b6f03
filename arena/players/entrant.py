"""Names of players, and what a player must do to take part where kernels are handed in: the protocol `Author`.

baseline, house, baseline-graph ...    a kernel that the arena brings along
model:NAME                             a model's answers, independent of each other
agent:NAME                             somebody who runs kernels while writing: a model with the arena's tools, or a program
                                       of that name (`arena/players/program/program.py`): claude-code, codex, ./my_agent.py
file:DIR                               kernels that lie in a folder, or in one file
"""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from arena.errors import PlayerFailed, UsageError
from arena.models.budget import Spent
from arena.runs.judge import Judgement
from arena.workspace.named_kernels import NAMED
from problems.specification import Problem
from sandbox.protocol.events import Setting


class PlayerKind(StrEnum):
    """What is before the colon of a player's name."""

    NAMED = "named"
    """No colon: one of `arena.workspace.named_kernels.NAMED`."""
    MODEL = "model"
    AGENT = "agent"
    FILE = "file"


@dataclass(frozen=True)
class PlayerName:
    """A player. `str()` gives the word back; results are stored under it."""

    kind: PlayerKind
    name: str
    """Of a named kernel its word, else what is behind the colon: a model, an agent, a path."""

    def __str__(self) -> str:
        return self.name if self.kind is PlayerKind.NAMED else f"{self.kind}:{self.name}"


def parse_player(word: str) -> PlayerName:
    """The player that a word stands for; whether there is such a model, agent or folder is not looked up.

    Raises:
        UsageError: the word is none of the forms above.
    """
    kind, colon, name = word.strip().partition(":")
    if not colon and kind in NAMED:
        return PlayerName(PlayerKind.NAMED, kind)
    kinds = (PlayerKind.MODEL, PlayerKind.AGENT, PlayerKind.FILE)
    if colon and name and kind in kinds:
        return PlayerName(PlayerKind(kind), name)
    raise UsageError(
        f"{word!r} names no player",
        f"use {', '.join(NAMED)}, model:NAME, agent:NAME or file:DIR",
    )


def check_own_name(name: str) -> None:
    """Whether somebody who writes kernels by hand, or by a program of their own, may be called so.

    Raises:
        UsageError: it is no name, or stands for other kernels.
    """
    if not re.fullmatch(r"\S.{0,58}\S|\S", name):
        raise UsageError(f"{name!r} cannot be a player's name", "use 1 to 60 letters, digits, - or _")
    if name in NAMED or name.partition(":")[0] in (PlayerKind.MODEL, PlayerKind.AGENT):
        # Its results would be taken for that kernel's: times of reference forms are even kept for later verdicts.
        raise UsageError(f"a file's player cannot be called {name!r}", "that name stands for other kernels")


@dataclass(frozen=True)
class Task:
    """One kernel to write."""

    problem: Problem
    setting: Setting
    attempt: int
    """1, 2, 3... Attempts of one player at one problem know nothing of each other."""


@dataclass(frozen=True)
class Submission:
    """What came of a task: a kernel, or none with the reason."""

    source: str | None
    """The kernel's text; empty for the baseline, which is run against itself. None: there is no kernel."""
    file_name: str = "kernel.py"
    """Shown in tracebacks. For the baseline the word `baseline`."""
    reason: str = ""
    """Why there is no kernel: "refusal", "empty", "prose", "truncated"..."""
    spent: Spent = field(default=Spent())
    trace_id: str = ""
    """The trace in the folder of the traces; empty where nobody wrote."""


class NoAnswer(PlayerFailed):
    """No answer could be had, after something was spent on it."""

    def __init__(self, error: PlayerFailed, spent: Spent) -> None:
        super().__init__(error.message, error.advice)
        self.spent = spent


class KernelAccess(Protocol):
    """Where an author may try kernels while it writes. Each call waits for its turn at the devices."""

    async def judge(self, source: str, name: str) -> Judgement:
        """The whole verdict. Such runs are no attempts: only what the author submits counts.

        Raises:
            ArenaError: it could not be run.
        """

    async def build(self, source: str, name: str) -> Judgement:
        """Compiles the kernel and calls it without timing it.

        Raises:
            ArenaError: it could not be run.
        """


class Author(Protocol):
    """Writes kernels for tasks. One author serves all tasks of its player, several at the same time."""

    @property
    def player(self) -> PlayerName:
        """Whose kernels these are."""

    @property
    def fixed(self) -> bool:
        """It has one kernel for a problem, at no cost: one attempt says all."""

    async def write(self, task: Task, access: KernelAccess) -> Submission:
        """One attempt at a task. Cancelling ends it, with all processes and requests it started.

        Raises:
            PlayerFailed: no answer could be had. This attempt has no result, and can be made again. `NoAnswer` where it cost.
            UsageError: this player has nothing for this problem or setting: it is left out.
        """
