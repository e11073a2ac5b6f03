"""The plan of `generate` and `agent`: their arguments and options, and the player that carries it out."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from arena.cli import options
from arena.errors import UsageError
from arena.models.budget import BudgetPool
from arena.paths import NAMED, make_folder
from arena.players.make_player import ModelPlayer
from arena.players.player import Player, PlayerKind, PlayerName, PlayerSetup, Task
from arena.runs.origin import Origin, find_origin
from arena.setting_choice import Choice, choose_setting
from problems.specification import Problem
from sandbox.machine.backends import backend_names, named, refusal
from sandbox.protocol.events import Setting


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The arguments and options of `generate` or `agent`."""

    session: options.CliSession
    problem: Problem
    setting: Setting
    model: str | None
    shots: int
    budget_usd: float | None
    budget_tokens: int | None
    rounds: int | None
    output: Path | None
    force: bool
    unsafe: bool
    steps: int = 1
    feedback: bool = False
    patience: int | None = None
    """Number of answers without a gain after which it ends; None or 0: no such limit."""
    run: bool = True
    origin: Origin | None = None
    """The kernel to improve."""
    other_sizes: bool = False
    """Whether correct kernels are judged at other sizes, too."""
    backend: str | None = None
    """The backend that the model should write for."""

    @property
    def task(self) -> Task:
        """What the model has to do."""
        return Task(self.problem, self.setting, origin=self.origin)


def _complete_model(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    models = options.open_session().settings.models
    found = [name for name in models if name.startswith(incomplete)]
    return [CompletionItem(name, help=models[name].model) for name in found]


def plan_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the arguments and options that `generate` and `agent` share. The command gets them as `plan: Plan`.

    If the command has another option with the name of a field of `Plan`, its value goes into the plan, too.
    """

    @options.problem_argument
    @click.option(
        "--model",
        metavar="M",
        shell_complete=_complete_model,
        help="A model named in the settings, or PROVIDER:MODEL with that provider's defaults.",
    )
    @options.shots_option
    @options.budget_option
    @options.number_option("--budget-tokens", within=(1, math.inf), help="Limit of tokens, read and written.")
    @click.option(
        "--from",
        "origin",
        metavar="KERNEL",
        help="Improve this kernel: a file, `house`, or the id of a run. The best kernel is timed against it.",
    )
    @click.option("--backend", type=click.Choice(backend_names()), help="Tell the model to write for this backend.")
    @options.setting_options
    @options.rounds_option
    @click.option(
        "--other-sizes",
        is_flag=True,
        help="Judge each correct kernel in three random legal settings, too; time a faster one in two of them.",
    )
    @click.option(
        *("-o", "--output"),
        type=options.kernel_path,
        metavar="FILE",
        help="For the best kernel, or FOLDER/. [default: the workspace's]",
    )
    @click.option("--force", is_flag=True, help="Overwrite a file that exists.")
    @options.unsafe_option
    @functools.wraps(command)
    def wrapped(*args: Any, problem: str, choice: Choice, **given: Any) -> Any:
        session = options.open_session()
        found = session.problem(problem)
        setting = choose_setting(found, choice, session.settings)
        backend = named(given["backend"] or "")
        if backend is not None and (reason := refusal(backend, setting.device, setting.world)):
            raise UsageError(reason, "choose two or more GPUs with --device cuda --world N")
        if (word := given.pop("origin")) is not None:
            given["origin"] = find_origin(word, found, setting, session.catalogue, session.paths)
        asked = {field.name: given.pop(field.name) for field in fields(Plan) if field.name in given}
        plan = Plan(session=session, problem=found, setting=setting, **asked)
        return command(*args, plan=plan, **given)

    return wrapped


def setup_of(plan: Plan) -> PlayerSetup:
    """Returns what the model is created with, and its prompt from."""
    session, pool = plan.session, BudgetPool(plan.budget_usd, plan.budget_tokens)
    read = (session.settings, session.catalogue, session.paths)
    return PlayerSetup(*read, pool, plan.shots, plan.patience or None, plan.backend)


def player_of(plan: Plan) -> Player:
    """Returns the model as a player, with all checks that need no request to it.

    Raises:
        UsageError: no such model, no key, a limit in dollars without prices, or the output file exists.
        FolderUnwritable: the output file cannot be written.
    """
    if plan.output is not None and plan.output.is_dir():
        raise UsageError(f"{plan.output} is a folder", f"name a file, or -o {plan.output}/")
    if plan.output is not None and plan.output.exists() and not plan.force:
        raise UsageError(f"{plan.output} exists", "choose another file with -o, or --force to overwrite it")
    if plan.model is None:
        raise UsageError("--model is missing", "name a model of the settings, or PROVIDER:MODEL")
    kind = PlayerKind.AGENT if plan.feedback else PlayerKind.MODEL
    player = ModelPlayer(PlayerName(kind, plan.model), setup_of(plan))
    if plan.output is not None:
        make_folder(plan.output.absolute().parent, NAMED)
    return player
