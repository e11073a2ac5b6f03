"""`pkb-arena duel`: two players at one problem, without the app."""

import os
import time
from pathlib import Path

import click

from arena.cli.diagnostics import complain, say
from arena.cli.duel.duel_lines import duel_line
from arena.cli.interrupts import run_interruptibly
from arena.cli.numbers import Number, Whole
from arena.cli.options import json_option, problem_argument, setting_options
from arena.cli.output import print_json, print_line
from arena.cli.players.model_options import unsafe_option
from arena.cli.session import CliSession, open_session
from arena.duel.card import svg_card, text_card
from arena.duel.events import AnyDuelEvent, DuelHeader
from arena.duel.journal import new_duel_id
from arena.duel.match import Match
from arena.duel.report import duel_report
from arena.duel.state import DuelState
from arena.errors import UsageError
from arena.paths import NAMED, require_writable, unwritable
from arena.players.make_entrant import DuelSide, make_side, spends_money
from arena.runs.engine import Engine
from arena.runs.run_request import Notice
from arena.setting_choice import Choice, choose_setting
from arena.workspace.atomic_file import write_atomically
from problems.specification import Problem
from sandbox.protocol.events import Setting
from sandbox.protocol.verdict import ExitCode

ROUNDS, ROUNDS_WITH_CLOCK = 3, 20
"""Kernels that a model may hand in, unless asked otherwise."""
_PLAYER = "A kernel file, `house`, `baseline`, a reference form of the baseline as for `run`, `model:NAME`, or `agent:PROGRAM`."


@click.command()
@problem_argument
@click.option("--left", required=True, metavar="P", help=_PLAYER)
@click.option("--right", required=True, metavar="P", help="The same for the other side.")
@click.option("--left-name", default="you", show_default=True, metavar="NAME", help="Whose file --left is.")
@click.option(
    "--right-name", default="guest", show_default=True, metavar="NAME", help="Whose file --right is."
)
@click.option(
    "--minutes",
    type=Number(0.05, 24 * 60),
    metavar="M",
    help="Play by the clock: every save of a file is handed in. [default: each side once, models N times]",
)
@click.option(
    "--rounds", type=Whole(1, 1000), metavar="N",
    help=f"Kernels that a model may hand in. [default: {ROUNDS}, by the clock {ROUNDS_WITH_CLOCK}]",
)  # fmt: skip
@click.option(
    "--budget", "budget_usd", type=Number(0, min_open=True), metavar="USD",
    help="Most that each side may spend: a model or an agent program stops there. Needs the model's prices.",
)  # fmt: skip
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), help="Write the result's card here.")
@unsafe_option
@setting_options
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    problem: str,
    left: str,
    right: str,
    left_name: str,
    right_name: str,
    minutes: float | None,
    rounds: int | None,
    budget_usd: float | None,
    svg: Path | None,
    unsafe: bool,
    choice: Choice,
    as_json: bool,
) -> None:
    """Let two players duel at PROBLEM: who writes the faster kernel?

    Kernels are judged as they are handed in; in the end the best of both sides run against each other on fresh
    inputs. A side wins if the interval says so, else it is a draw. Exit code 0: decided, a draw included;
    1: no side had a right kernel.
    """
    if svg is not None:
        require_writable(svg)
    session = open_session()
    found = session.problem(problem)
    setting = choose_setting(found, choice, session.settings)
    sides = (
        _side(session, left, found, setting, left_name, budget_usd),
        _side(session, right, found, setting, right_name, budget_usd),
    )
    if budget_usd is not None and not any(map(spends_money, sides)):
        raise UsageError(
            "--budget limits what models and agent programs spend, and no side is one that spends",
            "leave it out",
        )
    if sides[0].player.kind == sides[1].player.kind == "file" and left_name == right_name:
        raise UsageError(
            f"both sides are called {left_name!r}", "tell them apart with --left-name and --right-name"
        )
    header = DuelHeader(
        duel_id=new_duel_id(),
        created=time.time(),
        problem_id=found.id,
        slug=found.slug,
        title=found.title,
        category=found.category,
        left=sides[0].player,
        right=sides[1].player,
        setting=setting,
        preset_sizes=setting.sizes == found.presets.get(setting.preset),
        minutes=minutes,
        rounds=rounds or (ROUNDS if minutes is None else ROUNDS_WITH_CLOCK),
        budget_usd=budget_usd,
    )
    state = run_interruptibly(_play(session, found, header, sides, unsafe))
    assert state.ended is not None
    if svg is not None:
        _write(svg, svg_card(state))
    if as_json:
        print_json(duel_report(state))
    else:
        print_line(text_card(header, state.ended))
    right_kernel = state.ended.left.attempt or state.ended.right.attempt
    ctx.exit(ExitCode.PASS if right_kernel else ExitCode.KERNEL_FAILED)


def _side(
    session: CliSession, word: str, problem: Problem, setting: Setting, player: str, budget_usd: float | None
) -> DuelSide:
    return make_side(
        word, problem, setting, session.settings, session.catalogue, session.paths, player, budget_usd
    )


async def _play(
    session: CliSession, problem: Problem, header: DuelHeader, sides: tuple[DuelSide, DuelSide], unsafe: bool
) -> DuelState:
    def tell(event: AnyDuelEvent) -> None:
        if line := duel_line(header, event):
            say(line)

    def notice(notice: Notice) -> None:
        complain(notice.message, notice.advice)

    say(f"duel {header.duel_id}")
    async with Engine(session.paths) as engine:
        engine.subscribe_notices(notice)
        match = Match(
            engine, session.paths, problem, header, sides, budget_s=session.settings.budget_s, unsafe=unsafe
        )
        match.listeners.append(tell)
        await match.play()
        return match.state


def _write(path: Path, text: str) -> None:
    try:
        write_atomically(path, text.encode(), mode=0o644)
    except OSError as error:
        raise unwritable(Path(os.path.abspath(path)).parent, error, NAMED) from None
