"""Players: their names, the class `Player`, and the kernel access that a player has while it plays.

baseline, house, baseline-graph ...    a kernel that has a word
model:NAME                             a model; in sweeps and `generate` its answers are independent of each other
agent:NAME                             a model that reads its verdicts, or a program of that name: claude-code, ./my_agent.py
file:DIR                               kernels in a folder, or one file
you, guest ...                         a user, who plays from a file
"""

import re
from dataclasses import dataclass, field
from enum import StrEnum

from arena.errors import PlayerFailed, UsageError
from arena.models.budget import BudgetPool, Spent
from arena.paths import Paths
from arena.players.attempts import Attempt
from arena.players.prompts.prompt import SHOTS, Prompt, build_prompt
from arena.players.trace import AnyTraceEvent, TraceHeader, TraceRecorder
from arena.runs.judge import Judgement
from arena.runs.origin import Origin
from arena.settings import ModelSettings, Settings
from arena.workspace.named_kernels import NAMED
from problems.catalogue import Catalogue
from problems.specification import Problem
from sandbox.protocol.events import Setting
from sandbox.protocol.kernel_files import Files, Kernel


class PlayerKind(StrEnum):
    """What is before the colon of a player's name."""

    NAMED = "named"
    """No colon: one of `arena.workspace.named_kernels.NAMED`."""
    MODEL = "model"
    AGENT = "agent"
    FILE = "file"
    USER = "user"
    """No colon: somebody who writes by hand. `parse_player` never returns it."""


MCP = "mcp"
"""The player of runs that a client of the tool server asks for: a model, unless it gives another name."""
_WITH_COLON = (PlayerKind.MODEL, PlayerKind.AGENT, PlayerKind.FILE)


@dataclass(frozen=True)
class PlayerName:
    """A player's name. `str()` gives the word back; results are stored under it."""

    kind: PlayerKind
    name: str
    """Behind the colon: a model, an agent, a path. The whole word where there is no colon."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.kind in _WITH_COLON else self.name


def parse_player(word: str) -> PlayerName:
    """The player that a word stands for. Does not check that the model, agent or folder exists.

    Raises:
        UsageError: the word is none of the forms above.
    """
    kind, colon, name = word.strip().partition(":")
    if not colon and kind in NAMED:
        return PlayerName(PlayerKind.NAMED, kind)
    if colon and name and kind in _WITH_COLON:
        return PlayerName(PlayerKind(kind), name)
    if colon and kind == PlayerKind.AGENT:
        raise UsageError("no program is named", "give a path, or a command that begins with one: ./my_agent.py --fast")
    raise UsageError(f"{word!r} names no player", f"use {', '.join(NAMED)}, model:NAME, agent:NAME or file:DIR")


def user_name(name: str) -> PlayerName:
    """The name of somebody who writes kernels by hand, or by a program of their own.

    Raises:
        UsageError: it is no name, or stands for other kernels.
    """
    if not re.fullmatch(r"\S.{0,58}\S|\S", name):
        raise UsageError(f"{name!r} cannot be a player's name", "use 1 to 60 letters, digits, - or _")
    if name in NAMED or name.partition(":")[0] in (PlayerKind.MODEL, PlayerKind.AGENT):
        # Its results would be taken for that kernel's: times of baseline variants are even kept for later verdicts.
        raise UsageError(f"a file's player cannot be called {name!r}", "that name stands for other kernels")
    return PlayerName(PlayerKind.USER, name)


@dataclass(frozen=True)
class Task:
    """One kernel to write."""

    problem: Problem
    setting: Setting
    attempt: int = 1
    """1, 2, 3... A player's attempts at one problem are independent of each other."""
    origin: Origin | None = None
    """The kernel to improve; None: the player starts from the baseline."""


@dataclass(frozen=True)
class Submission:
    """A player's kernel for a task, or the reason why there is none."""

    source: str | None
    """The kernel's text; empty for the baseline, which is run against itself. None: there is no kernel."""
    file_name: str = "kernel.py"
    """Shown in tracebacks. For the baseline the word `baseline`."""
    reason: str = ""
    """Why there is no kernel: "refusal", "empty", "prose", "truncated"..."""
    spent: Spent = field(default=Spent())
    trace_id: str = ""
    """The trace in the folder of the traces; empty where nobody wrote."""
    ended: str = "done"
    """Why the player stopped: "done", "steps", "budget", "no gain", "time", "limit of memory: ...", "failed: ..."."""
    files: Files = field(default_factory=dict)
    """The other files of a kernel of several files; then `source` is the text of its kernel.py."""

    @property
    def kernel(self) -> Kernel | None:
        """All its files; None: there is no kernel."""
        return Kernel(self.source, self.files) if self.source is not None else None


class NoAnswer(PlayerFailed):
    """There is no answer, although something was spent on it."""

    def __init__(self, error: PlayerFailed, spent: Spent) -> None:
        super().__init__(error.message, error.advice)
        self.spent = spent


class KernelAccess:
    """What a player may call while it plays. Duels, sweeps and commands each have their own."""

    steps: int = 1
    """Kernels that the player may have judged, or answers that a model may give."""
    judges: bool = True
    """Kernels are judged while the player writes; else the submission alone is."""
    clocked: bool = False
    """The task ends with a clock: a file may be improved until then."""

    async def judge(self, source: str, name: str, files: Files | None = None) -> Judgement:
        """Judges a kernel. Waits for its turn at the devices. name: shown in tracebacks. files: beside its kernel.py.

        Raises:
            ArenaError: it could not be run.
        """
        raise NotImplementedError

    async def build(self, source: str, name: str, files: Files | None = None) -> Judgement:
        """Compiles a kernel and calls it without timing it. It is no submission.

        Raises:
            ArenaError: it could not be run.
        """
        raise NotImplementedError

    def began(self, header: TraceHeader) -> None:
        """Takes the header of the trace that is written from now on."""

    def hear(self, event: AnyTraceEvent) -> None:
        """Takes what the player writes, calls and spends."""

    def attempted(self, attempt: Attempt) -> None:
        """Takes an answer of a model, with its verdict if its kernel was judged."""

    def interrupted(self, newest: Submission) -> None:
        """Takes the player's newest kernel, which was not judged before the play was cancelled. Does not block."""

    def warn(self, text: str) -> None:
        """Takes what went wrong and stops nothing, such as a trace that cannot be written."""

    def record(self, header: TraceHeader, paths: Paths) -> TraceRecorder:
        """Opens the player's trace."""
        self.began(header)
        return TraceRecorder(header, paths, lambda error: self.warn(f"the trace is incomplete: {error}"), [self.hear])


class Player:
    """Plays tasks; implemented for everybody who submits kernels. One player serves all its tasks, several at the same time."""

    name: PlayerName
    fixed: bool = False
    """It has one kernel for a problem, at no cost: one attempt says all."""
    model: ModelSettings | None = None
    """The model that it pays for; None: it spends nothing."""
    kernel_path: str = ""
    """The file that it plays from, if it is one."""
    facts: str = ""
    """A sentence for those who choose a player: its model, its price, its jail."""

    def check(self, task: Task) -> None:
        """Checks that the player can play a task.

        Raises:
            UsageError: it has no kernel for this problem or setting.
        """

    async def play(self, task: Task, access: KernelAccess) -> Submission:
        """One attempt at a task. Cancelling ends it, with all processes and requests it started.

        Raises:
            PlayerFailed: there is no answer. The attempt has no result, and can be made again. `NoAnswer` where it cost.
            UsageError: this player has nothing for this problem or setting.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class PlayerSetup:
    """What players are made with."""

    settings: Settings
    catalogue: Catalogue
    paths: Paths
    pool: BudgetPool = field(default_factory=BudgetPool)
    shots: int = SHOTS
    """Worked examples in a model's prompt."""
    patience: int | None = None
    """Answers without a gain after which an agent stops; None: it never stops for that."""
    improves: bool = False
    """`model:NAME` reads its verdicts and writes again, as `agent:NAME` always does."""
    backend: str | None = None
    """A name of `sandbox.machine.backends` that models are told to write for."""

    def prompt(self, task: "Task") -> Prompt:
        """What a model or a program is told of a task. May take seconds on GPUs, where the machine is asked."""
        return build_prompt(
            task.problem, task.setting, self.catalogue, self.paths, self.shots, origin=task.origin, backend=self.backend
        )
