"""Players: their names, the class `Player`, and the kernel access that a player has while it plays.

baseline, house, baseline-graph ...    a named kernel
model:NAME                             a model; its answers are independent of each other
agent:NAME                             a model that gets its verdicts, or a program: claude-code, ./my_agent.py
file:DIR                               kernels in a folder, or one file
you, guest ...                         a user, who plays from a file
"""

import re
import time
from dataclasses import dataclass, field
from enum import StrEnum

from arena.errors import PlayerFailed, UsageError
from arena.models.budget import BudgetPool, Spent
from arena.paths import Paths
from arena.players.attempts import Attempt
from arena.players.prompt import SHOTS, Prompt, build_prompt
from arena.players.trace import VERSION, AnyTraceEvent, TraceHeader, TraceRecorder
from arena.records.header import new_id
from arena.records.run_record import view
from arena.runs.judge import Judgement
from arena.runs.origin import Origin
from arena.settings import ModelSettings, Settings
from arena.workspace.named_kernels import NAMED
from problems.catalogue import Catalogue
from problems.specification import Problem
from sandbox.protocol.events import Setting
from sandbox.protocol.kernel_files import Kernel


class PlayerKind(StrEnum):
    """The part of a player's name before the colon."""

    NAMED = "named"
    """No colon: one of `arena.workspace.named_kernels.NAMED`."""
    MODEL = "model"
    AGENT = "agent"
    FILE = "file"
    USER = "user"
    """No colon: a user who writes kernels by hand. `parse_player` never returns it."""


MCP = "mcp"
"""Default player of the runs that a client of the tool server requests. The board counts it as an agent."""
_WITH_COLON = (PlayerKind.MODEL, PlayerKind.AGENT, PlayerKind.FILE)


@dataclass(frozen=True)
class PlayerName:
    """A player's name. `str()` returns the word that was parsed; results are stored under it."""

    kind: PlayerKind
    name: str
    """The part after the colon: a model, an agent, a path. The whole word if there is no colon."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.kind in _WITH_COLON else self.name


def parse_player(word: str) -> PlayerName:
    """Parses a player's name. Does not check that the model, agent or folder exists.

    Raises:
        UsageError: the word has none of the forms that the module docstring lists.
    """
    kind, colon, name = word.strip().partition(":")
    if not colon and kind in NAMED:
        return PlayerName(PlayerKind.NAMED, kind)
    if colon and name and kind in _WITH_COLON:
        return PlayerName(PlayerKind(kind), name)
    if colon and kind == PlayerKind.AGENT:
        raise UsageError("no program is named", "give a path, or a command that begins with one: ./my_agent.py --fast")
    if word == "you":
        raise UsageError("you play in the app", "press F8 at a kernel there; here name your kernel's file")
    raise UsageError(f"{word!r} names no player", f"use {', '.join(NAMED)}, model:NAME, agent:NAME or file:DIR")


def user_name(name: str) -> PlayerName:
    """Returns the name of a user who writes kernels by hand or with a program of their own.

    Raises:
        UsageError: the name is invalid, or is reserved for other kernels.
    """
    if not re.fullmatch(r"\S.{0,58}\S|\S", name):
        raise UsageError(f"{name!r} cannot be a player's name", "use 1 to 60 characters, without spaces at the ends")
    if name in NAMED or name.partition(":")[0] in _WITH_COLON:
        # Its results would count as that kernel's. Later verdicts even reuse the times of baseline variants.
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


def trace_header(task: Task, prompt: Prompt, steps: int, budget_usd: float | None, **player: str) -> TraceHeader:
    """Returns the header of a trace that begins now. Draws a new trace id.

    player: the fields `player`, `provider` and `model`; `prompt_sha256` if the player gets more than the prompt.
    """
    problem, origin = task.problem, task.origin
    return view(
        TraceHeader, problem, task, prompt,
        trace_id=new_id(),
        created=time.time(),
        problem_id=problem.id,
        prompt_version=prompt.version,
        steps=steps,
        budget_usd=budget_usd,
        origin=origin.sha256 if origin is not None else "",
        origin_name=origin.name if origin is not None else "",
        version=VERSION,
        **({"prompt_sha256": prompt.sha256} | player),
    )  # fmt: skip


@dataclass(frozen=True)
class Submission:
    """A player's kernel for a task, or the reason why there is none."""

    kernel: Kernel | None
    """Its text is empty for the baseline, which is run against itself. None: there is no kernel."""
    file_name: str = "kernel.py"
    """Shown in tracebacks. For the baseline the word `baseline`."""
    reason: str = ""
    """Why there is no kernel: "refusal", "empty", "prose", "truncated"..."""
    spent: Spent = field(default=Spent())
    trace_id: str = ""
    """Id of the trace; empty for a player without a trace."""
    ended: str = "done"
    """Why the player stopped: "done", "steps", "budget", "no gain", "refused", "harness", "time",
    "limit of memory: ...", "failed: ..."."""


class NoAnswer(PlayerFailed):
    """A player returned no answer, but may have spent money. `spent`: the amount."""

    def __init__(self, error: PlayerFailed, spent: Spent) -> None:
        super().__init__(error.message, error.advice)
        self.spent = spent


class KernelAccess:
    """What a player may call while it plays. Duels, sweeps and commands each have their own.

    `judge` and `build` raise ArenaError if the kernel could not be run.
    """

    steps: int = 1
    """Maximum number of kernels to judge, or of answers of a model."""
    judges: bool = True
    """Whether kernels are judged while the player writes. If not, only the submission is judged."""
    clocked: bool = False
    """Whether a clock ends the task. Until then a file may be improved."""

    async def judge(self, kernel: Kernel, name: str) -> Judgement:
        """Judges a kernel. Blocks until the devices are free.

        name: shown in tracebacks.
        """
        raise NotImplementedError

    async def build(self, kernel: Kernel, name: str) -> Judgement:
        """Compiles a kernel and calls it without timing it. This is not a submission."""
        raise NotImplementedError

    def began(self, header: TraceHeader) -> None:
        """Receives the header of the player's trace when the trace begins."""

    def hear(self, event: AnyTraceEvent) -> None:
        """Receives each event of the player's trace: text, tool calls, spending."""

    def attempted(self, attempt: Attempt) -> None:
        """Receives an answer of a model, with the verdict if its kernel was judged."""

    def interrupted(self, newest: Submission) -> None:
        """Receives the newest kernel if the play was cancelled before it was judged. Does not block."""

    def warn(self, text: str) -> None:
        """Receives a problem that does not stop the player, such as a trace that cannot be written."""

    def record(self, header: TraceHeader, paths: Paths) -> TraceRecorder:
        """Opens the player's trace."""
        self.began(header)
        return TraceRecorder(header, paths, lambda error: self.warn(f"the trace is incomplete: {error}"), [self.hear])


class Player:
    """Base class of all who submit kernels. One object plays all tasks of a player, several at the same time."""

    name: PlayerName
    fixed: bool = False
    """Whether it has exactly one kernel per problem, at no cost. One attempt is then enough."""
    model: ModelSettings | None = None
    """The model whose use costs money; None: the player spends nothing."""
    kernel_path: str = ""
    """The player's kernel file or folder; empty if it has none."""
    facts: str = ""
    """A short description for the user: the player's model, price and jail."""

    def check(self, task: Task) -> None:
        """Checks that the player can play a task.

        Raises:
            UsageError: it has no kernel for this problem or setting.
        """

    async def play(self, task: Task, access: KernelAccess) -> Submission:
        """Makes one attempt at a task. Cancelling ends all processes and requests that it started.

        Raises:
            PlayerFailed: there is no answer, and the attempt can be repeated. `NoAnswer` has the money spent.
            UsageError: this player has nothing for this problem or setting.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class PlayerSetup:
    """The arguments that all players are created with."""

    settings: Settings
    catalogue: Catalogue
    paths: Paths
    pool: BudgetPool = field(default_factory=BudgetPool)
    shots: int = SHOTS
    """Worked examples in a model's prompt."""
    patience: int | None = None
    """Answers without a gain after which an agent stops; None: no limit."""
    backend: str | None = None
    """The backend that models must write for, a name of `sandbox.machine.backends`; None: any."""

    def prompt(self, task: "Task") -> Prompt:
        """Builds the prompt of a model or program. May take seconds on GPUs, because it queries the driver."""
        return build_prompt(
            task.problem, task.setting, self.catalogue, self.paths, self.shots, task.origin, self.backend
        )
