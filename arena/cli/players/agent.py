"""`pkb-arena agent`: a model writes a kernel, reads the verdict, and improves it."""

from pathlib import Path

import click

from arena.cli.model_options import (
    budget_option,
    force_option,
    model_option,
    output_option,
    shots_option,
    tokens_option,
    unsafe_option,
)
from arena.cli.numbers import Whole
from arena.cli.options import json_option, problem_argument, rounds_option, setting_options
from arena.cli.players.writing import Plan, write_and_print
from arena.cli.session import open_session
from arena.errors import UsageError
from arena.players.agent import PATIENCE, STEPS
from arena.setting_choice import Choice, choose_setting
from sandbox.protocol.verdict import ExitCode


@click.command()
@problem_argument
@model_option
@click.option(
    "--steps",
    type=Whole(1, 1000),
    default=STEPS,
    show_default=True,
    metavar="N",
    help="Most answers.",
)
@click.option(
    "--patience",
    type=Whole(0, 1000),
    default=PATIENCE,
    show_default=True,
    metavar="N",
    help="Stop after N answers without a gain; 0: no such limit.",
)
@shots_option
@budget_option
@tokens_option
@setting_options
@rounds_option
@output_option
@force_option
@unsafe_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    problem: str,
    model: str | None,
    steps: int,
    patience: int,
    shots: int,
    budget_usd: float | None,
    budget_tokens: int | None,
    choice: Choice,
    rounds: int | None,
    output: Path | None,
    force: bool,
    unsafe: bool,
    as_json: bool,
) -> None:
    """Have a model write a kernel for PROBLEM, judge it, and let it improve the kernel by the verdicts.

    It plays as agent:M. `pkb-arena replay TRACE` shows its work.
    """
    session = open_session()
    found = session.problem(problem)
    if model is None:
        raise UsageError("--model is missing", "name a model of the settings, or PROVIDER:MODEL")
    plan = Plan(
        session=session,
        problem=found,
        setting=choose_setting(found, choice, session.settings),
        model=model,
        shots=shots,
        steps=steps,
        feedback=True,
        patience=patience or None,
        rounds=rounds,
        budget_usd=budget_usd,
        budget_tokens=budget_tokens,
        output=output,
        force=force,
        unsafe=unsafe,
    )
    report = write_and_print(plan, as_json)
    ctx.exit(ExitCode.PASS if report.passed else ExitCode.KERNEL_FAILED)
