"""The work of `generate` and `agent`: a model writes kernels, they are judged, the best one goes to a file."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import click
import msgspec
from click.shell_completion import CompletionItem

from arena.cli.diagnostics import complain, say
from arena.cli.interrupts import run_interruptibly
from arena.cli.numbers import Number, Whole
from arena.cli.options import problem_argument, rounds_option, setting_options, shots_option, unsafe_option
from arena.cli.output import compact, other_sizes_lines, print_json, print_line
from arena.cli.players.writing_progress import WritingProgress, spent_text
from arena.cli.runs.progress import RunProgress
from arena.cli.session import CliSession, open_session
from arena.errors import UsageError
from arena.models.budget import BudgetPool, Spent
from arena.paths import NAMED, make_folder, unwritable
from arena.players.attempts import Attempt, best_of, counts, pass_at
from arena.players.judge_access import JudgeAccess
from arena.players.kept_kernels import keep_revisions, save_best
from arena.players.model import ModelPlayer
from arena.players.player import Player, PlayerKind, PlayerName, PlayerSetup, Task
from arena.players.trace import AnyTraceEvent, Asked
from arena.runs.engine import Engine
from arena.runs.judge import Judgement
from arena.runs.origin import Origin, find_origin
from arena.runs.results import RunReport
from arena.setting_choice import Choice, choose_setting
from arena.workspace.atomic_file import write_named_file
from arena.workspace.kernel_folder import write_folder
from arena.workspace.kernels import Workspace
from problems.specification import Problem
from sandbox.machine.backends import backend_names, named, refusal
from sandbox.protocol.events import Setting
from sandbox.protocol.kernel_files import Kernel
from sandbox.protocol.verdict import ExitCode


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The work that was asked for."""

    session: CliSession
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
    """Answers without a gain after which it ends; None or 0: no such limit."""
    run: bool = True
    origin: Origin | None = None
    """The kernel to improve."""
    other_sizes: bool = False
    """Right kernels are judged at other sizes, too."""
    backend: str | None = None
    """The backend to write for."""


def _complete_model(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    models = open_session().settings.models
    found = [name for name in models if name.startswith(incomplete)]
    return [CompletionItem(name, help=models[name].model) for name in found]


def plan_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The arguments and options that `generate` and `agent` share, handed to the command as `plan: Plan`.

    Where another option of the command is named like a field of `Plan`, the plan takes that, too.
    """

    @problem_argument
    @click.option(
        "--model",
        metavar="M",
        shell_complete=_complete_model,
        help="A model named in the settings, or PROVIDER:MODEL with that provider's defaults.",
    )
    @shots_option
    @click.option(
        "--budget",
        "budget_usd",
        type=Number(0, min_open=True),
        metavar="USD",
        help="Money limit in dollars. Needs the model's prices.",
    )
    @click.option("--budget-tokens", type=Whole(1), metavar="N", help="Limit of tokens, read and written.")
    @click.option(
        "--from",
        "origin",
        metavar="KERNEL",
        help="Improve this kernel: a file, `house`, or the id of a run. The best kernel is timed against it.",
    )
    @click.option("--backend", type=click.Choice(backend_names()), help="Tell the model to write for this backend.")
    @setting_options
    @rounds_option
    @click.option(
        "--other-sizes",
        is_flag=True,
        help="Judge each right kernel in three random legal settings, too; time a faster one in two of them.",
    )
    @click.option(
        "-o",
        "--output",
        type=click.Path(path_type=Path, dir_okay=False),
        help="File for the best kernel. [default: the workspace's]",
    )
    @click.option("--force", is_flag=True, help="Overwrite a file that exists.")
    @unsafe_option
    @functools.wraps(command)
    def wrapped(*args: Any, problem: str, choice: Choice, **given: Any) -> Any:
        session = open_session()
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


class AttemptReport(msgspec.Struct, rename={"reason": "complaint"}, frozen=True, kw_only=True):
    """One answer."""

    step: int
    outcome: str
    """ "kernel", "refusal", "unreadable", "empty", "prose", "truncated" or "budget"."""
    reason: str
    sha256: str | None
    continued: int
    spent: Spent
    report: RunReport | None
    """As `run --json`; null without a kernel, or when nothing was run."""


class OriginReport(msgspec.Struct, frozen=True, kw_only=True):
    """The kernel to improve, and the best kernel against it."""

    kernel: str
    sha256: str
    report: RunReport | None
    """Of the best kernel with this one in the baseline's place, as `run --against`; null without a right kernel."""


class WritingReport(msgspec.Struct, frozen=True, kw_only=True):
    """The one JSON object of `generate --json` and `agent --json`."""

    trace_id: str
    problem: str
    id: int
    category: str
    model: str
    player: str
    prompt: dict[str, str | int]
    attempts: list[AttemptReport]
    best: int | None
    """Step of the best attempt that was run."""
    passed: bool
    kernel: str | None
    """The file with the best kernel."""
    reason: str
    """The reason of its end: "steps", "budget", "no gain", "refused", "harness", "failed: ..."."""
    spent: Spent
    pass_at: dict[str, float] | None
    """k -> chance that one of k independent attempts passes; null for an agent. Of the attempts that count (`counts`)."""
    faster_at: dict[str, float] | None
    """The same for passing and being faster than the baseline."""
    origin: OriginReport | msgspec.UnsetType = msgspec.UNSET
    """With --from; else not in the JSON."""

    @property
    def provider_failed(self) -> bool:
        """The provider ended the attempts, maybe after a kernel was judged."""
        return self.reason.startswith("failed")

    @property
    def exit_code(self) -> ExitCode:
        """3 where the provider failed, and where no attempt tells anything about the model."""
        if self.provider_failed:
            return ExitCode.ENVIRONMENT
        if self.passed:
            return ExitCode.PASS
        told = any(counts(attempt.outcome, attempt.report) for attempt in self.attempts)
        return ExitCode.KERNEL_FAILED if told else ExitCode.ENVIRONMENT


def player_of(plan: Plan) -> Player:
    """The model as a player, checked as far as can be without asking it.

    Raises:
        UsageError: no such model, no key, dollars without prices, or the output file exists.
        FolderUnwritable: the output file cannot be written.
    """
    if plan.output is not None and plan.output.exists() and not plan.force:
        raise UsageError(f"{plan.output} exists", "choose another file with -o, or --force to overwrite it")
    if plan.model is None:
        raise UsageError("--model is missing", "name a model of the settings, or PROVIDER:MODEL")
    session = plan.session
    pool = BudgetPool(plan.budget_usd, plan.budget_tokens)
    setup = PlayerSetup(
        session.settings,
        session.catalogue,
        session.paths,
        pool,
        plan.shots,
        plan.patience or None,
        backend=plan.backend,
    )
    kind = PlayerKind.AGENT if plan.feedback else PlayerKind.MODEL
    player = ModelPlayer(PlayerName(kind, plan.model), setup)
    if plan.output is not None:
        make_folder(plan.output.absolute().parent, NAMED)
    return player


def write_and_print(plan: Plan, as_json: bool) -> WritingReport:
    """Lets the model write, and prints the result.

    Raises:
        ArenaError: the provider, the judge or the machine failed.
        UsageError, FolderUnwritable: as `player_of`.
    """
    report = run_interruptibly(write_kernels(plan, player_of(plan)))
    if as_json:
        print_json(report)
    else:
        print_writing(report)
    return report


async def write_kernels(plan: Plan, player: Player) -> WritingReport:
    """Has the model write, and its kernels judged. Whatever happens, the best kernel so far is kept.

    Raises:
        ArenaError: the provider, the judge or the machine failed.
    """
    run_progress, progress = RunProgress(), WritingProgress(str(player.name))
    task = Task(plan.problem, plan.setting, origin=plan.origin)
    compared: Judgement | None = None

    def hear(event: AnyTraceEvent) -> None:
        if access.header is not None and isinstance(event, Asked) and event.step == 1:
            say(f"trace {access.header.trace_id}")
        run_progress.clear()
        progress.event(event)

    engine = Engine(plan.session.paths)
    access = JudgeAccess(
        engine,
        task,
        str(player.name),
        steps=plan.steps,
        rounds=plan.rounds,
        budget_s=plan.session.settings.budget_s,
        unsafe=plan.unsafe,
        other_sizes=plan.other_sizes,
        hear=hear,
        warn=complain,
        hear_other_size=run_progress.other_size,
    )
    access.judges = plan.run
    path: Path | None = None
    try:
        async with engine:
            if plan.run:
                # Worlds that warm up while the model writes must not draw over its line.
                engine.subscribe(lambda event: run_progress.event(event) if engine.running else None)
                engine.subscribe_notices(run_progress.notice)
                await access.start()
                await engine.warm(plan.setting)  # while the model writes
                if plan.origin is not None:
                    task = replace(task, origin=await access.judge_origin(plan.origin))
            try:
                await player.play(task, access)
            finally:
                path = _keep(plan, access)
            if plan.run and plan.origin is not None:
                progress.clear()
                say(f"timing the best kernel against {plan.origin.name}")
                compared = await access.compare()
    finally:
        progress.clear()
        run_progress.clear()
    return _report(plan, access, path, compared)


def _keep(plan: Plan, access: JudgeAccess) -> Path | None:
    """Writes the best kernel to its file; every other one is a revision in the workspace."""
    workspace = Workspace(plan.session.paths.workspace)
    best = keep_revisions(workspace, access.attempts)
    if best is None or access.header is None:
        return None
    if plan.output is None:
        return save_best(workspace, plan.problem, access.header.player, best)
    make_folder(plan.output.absolute().parent, NAMED)
    if best.answer.files:
        return _write_folder(plan.output.with_suffix(""), best.answer.kernel)
    write_named_file(plan.output, best.answer.source)
    return plan.output


def _write_folder(folder: Path, kernel: Kernel) -> Path:
    """Writes a kernel of several files; where there is something of this name, the hash is part of another one."""
    if folder.exists():
        folder = folder.with_name(f"{folder.name}-{kernel.sha256[:8]}")
    try:
        write_folder(folder, kernel, mode=0o644)
    except OSError as error:
        raise unwritable(folder.absolute().parent, error, NAMED) from None
    return folder


def _report(plan: Plan, access: JudgeAccess, path: Path | None, compared: Judgement | None) -> WritingReport:
    header, ended, attempts = access.header, access.ended, access.attempts
    assert header is not None
    assert ended is not None
    best = best_of(attempts)
    count = sum(counts(attempt.answer.outcome, attempt.report) for attempt in attempts)
    sampled = range(1, count + 1) if plan.run and not plan.feedback else None
    passed = sum(attempt.passed for attempt in attempts)
    faster = sum(attempt.faster for attempt in attempts)
    return WritingReport(
        trace_id=header.trace_id,
        problem=plan.problem.slug,
        id=plan.problem.id,
        category=plan.problem.category,
        model=header.model,
        player=header.player,
        prompt={"version": header.prompt_version, "shots": header.shots, "sha256": header.prompt_sha256},
        attempts=[_attempt(attempt) for attempt in attempts],
        best=best.step if best is not None else None,
        passed=best is not None and best.passed,
        kernel=str(path) if path is not None else None,
        reason=ended.reason,
        spent=ended.spent,
        pass_at={str(k): pass_at(k, count, passed) for k in sampled} if sampled is not None else None,
        faster_at={str(k): pass_at(k, count, faster) for k in sampled} if sampled is not None else None,
        origin=_origin(plan.origin, compared) if plan.origin is not None else msgspec.UNSET,
    )


def _origin(origin: Origin, compared: Judgement | None) -> OriginReport:
    report = compared.report if compared is not None else None
    return OriginReport(kernel=origin.name, sha256=origin.sha256, report=report)


def _attempt(attempt: Attempt) -> AttemptReport:
    kernel = attempt.answer.kernel if attempt.answer.outcome == "kernel" else None
    return AttemptReport(
        step=attempt.step,
        outcome=attempt.answer.outcome,
        reason=attempt.answer.reason,
        sha256=kernel.sha256 if kernel is not None else None,
        continued=attempt.answer.continued,
        spent=attempt.answer.spent,
        report=attempt.report,
    )


def print_writing(report: WritingReport) -> None:
    """A model's work for a person."""
    for attempt in report.attempts:
        what = compact(attempt.report) if attempt.report is not None else attempt.reason or "not run"
        mark = "*" if attempt.step == report.best else " "
        print_line(f"{mark} {attempt.step}  {what}")
        for line in other_sizes_lines(attempt.report) if attempt.report is not None else ():
            print_line(f"     {line}")
    if report.pass_at:
        k = str(len(report.pass_at))
        print_line(f"pass@1 {report.pass_at['1']:.2f}   pass@{k} {report.pass_at[k]:.2f}")
    if report.origin:
        told = compact(report.origin.report) if report.origin.report is not None else "no right kernel to compare"
        print_line(f"against {report.origin.kernel}: {told}")
    print_line(f"{report.player}: {spent_text(report.spent)}; ended: {report.reason}")
    if report.kernel is not None:
        print_line(report.kernel)
