"""`pkb-arena sweep`: runs players on problems. Without `--players`, it runs every baseline against itself."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import click
from click.core import ParameterSource
from msgspec import structs

from arena.cli import options
from arena.cli.display import run_interruptibly
from arena.cli.output import say, while_it_is_read
from arena.cli.sweep_output import BaselineRows, SweepProgressLine, print_sweep
from arena.errors import UsageError
from arena.machine.facts import choose_device, this_machine
from arena.models.budget import BudgetPool
from arena.players.agent import PATIENCE
from arena.players.make_player import make_player
from arena.players.player import PlayerSetup
from arena.records.voids import read_voids
from arena.runs.engine import Engine
from arena.setting_choice import Choice
from arena.sweep.journal import (
    SweepJournal,
    begin_session,
    last_plan,
    new_name,
    open_journal,
    plan_to_go_on,
    same_plan,
    sweep_path,
)
from arena.sweep.queue import Worker
from arena.sweep.records import ALL, SweepPlan, choose_problems, parse_players
from arena.sweep.sweep import Sweep, SweepProgress
from arena.workspace.named_kernels import BASELINE
from sandbox.protocol.verdict import ExitCode

ROUNDS = 5
"""Default number of rounds for a baseline against itself."""


@dataclass(frozen=True)
class SweepOrder:
    """The options of the command line that are not part of the plan."""

    name: str
    resume: bool
    ahead: int
    unsafe: bool
    ray: str | None
    """Address of a cluster; empty: starts one; None: uses this machine's own engine."""
    as_json: bool


@click.command()
@click.argument("problems", nargs=-1, metavar="[PROBLEM]...")
@click.option(
    "--problems",
    "problem_set",
    metavar="SET",
    help="all, category:expert, class:B, 1-8,13 or names; joined by commas. [default: all]",
)
@click.option(
    "--players",
    metavar="P,P",
    help="baseline, house, model:NAME, agent:NAME (a model that gets its verdicts, or an agent program), file:DIR."
    " [default: baseline, against itself]",
)
@options.number_option(
    "--attempts", within=(1, 1000), metavar="K", help="Answers of every model and agent at every problem. [default: 1]"
)
@options.budget_option
@options.seconds_option
@click.option(
    "--other-sizes/--one-size",
    default=None,
    help="After a PASS judge three other legal settings; time a faster kernel in two. [default: on with --players]",
)
@click.option("--name", default="", metavar="NAME", help="Name of the sweep. [default: date and time]")
@click.option(
    "--resume",
    is_flag=True,
    help="Continue the sweep of this --name, else the newest with the same plan. With no other option: the newest."
    " A named sweep keeps its plan; only --budget and --seconds may change.",
)
@options.number_option("--ahead", within=(1, 64), default=4, help="Answers written at the same time, ahead of judging.")
@options.number_option(
    "--steps", within=(1, 1000), default=20, help="Kernels that an agent may have judged in one attempt."
)
@click.option(
    "--ray",
    is_flag=False,
    flag_value="",
    metavar="[ADDRESS]",
    help="Judge on the hosts of a Ray cluster, one worker a host (extra `ray`). [without ADDRESS: a cluster of this machine]",
)
@options.shots_option
@options.setting_options
@options.rounds_option
@options.unsafe_option
@options.json_option
@click.pass_context
def command(
    ctx: click.Context,
    problems: tuple[str, ...],
    problem_set: str | None,
    players: str | None,
    attempts: int | None,
    budget_usd: float | None,
    seconds: float | None,
    other_sizes: bool | None,
    name: str,
    resume: bool,
    ahead: int,
    steps: int,
    ray: str | None,
    shots: int,
    choice: Choice,
    rounds: int | None,
    unsafe: bool,
    as_json: bool,
) -> None:
    """Run players on problems. Every result is journalled; --resume continues a sweep that was stopped.

    Without --players the baselines of all problems, or of those named, run against themselves, and a table is printed.
    Exit code 1: a baseline fails, or the headline's clock calls it faster or slower than itself. 3: only the harness
    failed, or the sweep was stopped.

    With --players, exit code 0: every result is in, whatever the verdicts. 3: the sweep could not be finished, because of
    a provider, the machine, the budget, or a kernel file that cannot be read.
    """
    session = options.open_session()
    words = [*problems, *([problem_set] if problem_set is not None else [])]
    asked: dict[str, Any] = {key: value for key, value in structs.asdict(choice).items() if value}
    if words:
        asked["problems"] = _slugs(session, words)
    if players is not None:
        asked["players"] = parse_players(players)
    limits = {"attempts": attempts, "budget_usd": budget_usd, "seconds": seconds, "rounds": rounds}
    asked |= {key: value for key, value in (limits | {"other_sizes": other_sizes}).items() if value is not None}
    for key, value in (("shots", shots), ("steps", steps)):
        if ctx.get_parameter_source(key) is ParameterSource.COMMANDLINE:
            asked[key] = value
    if resume and not asked:
        name, plan = plan_to_go_on(session.paths, name)
    elif resume and name and (stored := last_plan(sweep_path(session.paths.sweeps, name))) is not None:
        plan = stored.plan.changed(asked)
    else:
        asked.setdefault("other_sizes", players is not None)
        if players is None:
            asked = {"players": [BASELINE], "rounds": ROUNDS, **asked}
        plan = SweepPlan(**({"problems": _slugs(session, [ALL])} | asked))
        if resume and not name:
            name = same_plan(session.paths, plan)
    order = SweepOrder(name or new_name(), resume, ahead, unsafe, ray, as_json)
    ctx.exit(_run(session, plan, order))


def _slugs(session: options.CliSession, words: list[str]) -> list[str]:
    return [problem.slug for problem in choose_problems(session.catalogue, words)]


def _run(session: options.CliSession, plan: SweepPlan, order: SweepOrder) -> int:
    """Runs the sweep, then prints its results on stdout. Returns the exit code."""
    problems = [session.problem(slug) for slug in plan.problems]
    journal = open_journal(session.paths, order.name, order.resume)
    rows = BaselineRows(plan) if plan.players == [BASELINE] else None
    try:
        pool = BudgetPool(plan.budget_usd, before=journal.spent)
        setup = PlayerSetup(session.settings, session.catalogue, session.paths, pool, plan.shots, PATIENCE)
        players = [make_player(word, setup) for word in plan.players]
        progress = SweepProgressLine(order.name, rows)

        async def sweep() -> None:
            async with _workers(session, plan, order, progress) as workers:
                begin_session(journal, plan, workers)
                made = Sweep(
                    plan,
                    problems,
                    players,
                    workers,
                    journal,
                    session.settings,
                    pool,
                    ahead=order.ahead,
                    unsafe=order.unsafe,
                    listener=progress.listener,
                )
                with progress.watching(made):
                    await made.run()

        try:
            run_interruptibly(sweep())
        finally:  # an interrupted sweep has results, too
            with while_it_is_read():
                _show(session, journal, rows, progress.progress, order)
        counts = progress.progress
        if rows is None and not counts.total:
            journal.withdraw_session()
            raise UsageError("nothing can be played: every player is left out at every problem", counts.left_out)
    finally:
        journal.leave()
    if rows is not None:
        return rows.exit_code() or (ExitCode.ENVIRONMENT if counts.stopped else ExitCode.PASS)
    return ExitCode.PASS if counts.whole else ExitCode.ENVIRONMENT


@asynccontextmanager
async def _workers(
    session: options.CliSession, plan: SweepPlan, order: SweepOrder, progress: SweepProgressLine
) -> AsyncIterator[list[Worker]]:
    """Yields the workers: this machine's engine alone, or the hosts of a cluster."""
    device = choose_device(plan.device or session.settings.device)
    if order.ray is not None:
        from arena.sweep.ray_workers import ray_workers

        async with ray_workers(session.paths, device, order.ray) as workers:
            yield workers
        return
    async with Engine(session.paths, notify=progress.notice) as engine:
        await engine.start()
        yield [Worker("local", engine, this_machine(device))]


def _show(
    session: options.CliSession,
    journal: SweepJournal,
    rows: BaselineRows | None,
    progress: SweepProgress,
    order: SweepOrder,
) -> None:
    """Prints the results on stdout, and on stderr what is missing and how to continue."""
    if progress.stopped:
        say(f"stopped: {progress.stopped}")
    if rows is not None:
        rows.read(journal.path)
        rows.show(order.as_json, begun=progress.total > 0)
    elif progress.done or (order.as_json and progress.total):
        print_sweep(journal.path, progress, read_voids(session.paths.voids), order.as_json)
    if progress.total and not progress.whole:
        missing = f"{progress.done} of {progress.total} results are in"
        say(f"{missing}; continue with `pkb-arena sweep --resume --name {order.name}`")
