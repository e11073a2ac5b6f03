"""`pkb-arena generate`: a model writes a kernel."""

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
from arena.cli.output import print_json, print_line
from arena.cli.players.writing import Plan, write_and_print
from arena.cli.session import open_session
from arena.errors import UsageError
from arena.players.prompts.prompt import Prompt, build_prompt
from arena.setting_choice import Choice, choose_setting
from sandbox.protocol.verdict import ExitCode


@click.command()
@problem_argument
@model_option
@click.option("--print-prompt", is_flag=True, help="Print the prompt, and call no model.")
@click.option(
    "--attempts",
    type=Whole(1, 1000),
    default=1,
    show_default=True,
    metavar="K",
    help="Independent answers; the best one is kept, and pass@k is printed.",
)
@shots_option
@budget_option
@tokens_option
@click.option("--no-run", is_flag=True, help="Write kernels without judging them.")
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
    print_prompt: bool,
    attempts: int,
    shots: int,
    budget_usd: float | None,
    budget_tokens: int | None,
    no_run: bool,
    choice: Choice,
    rounds: int | None,
    output: Path | None,
    force: bool,
    unsafe: bool,
    as_json: bool,
) -> None:
    """Have a model write a kernel for PROBLEM, and judge it. It plays as model:M, without feedback."""
    session = open_session()
    found = session.problem(problem)
    setting = choose_setting(found, choice, session.settings)
    if print_prompt:
        _print(build_prompt(found, setting, session.catalogue, session.paths, shots), as_json)
        return
    if model is None:
        raise UsageError("--model is missing", "name a model of the settings, or PROVIDER:MODEL")
    plan = Plan(
        session=session,
        problem=found,
        setting=setting,
        model=model,
        shots=shots,
        steps=attempts,
        feedback=False,
        patience=None,
        rounds=rounds,
        budget_usd=budget_usd,
        budget_tokens=budget_tokens,
        output=output,
        force=force,
        unsafe=unsafe,
        run=not no_run,
    )
    report = write_and_print(plan, as_json)
    good = report.passed or (no_run and report.kernel is not None)
    ctx.exit(ExitCode.PASS if good else ExitCode.KERNEL_FAILED)


def _print(prompt: Prompt, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "version": prompt.version,
                "shots": prompt.shots,
                "sha256": prompt.sha256,
                "conversation": prompt.conversation,
            }
        )
    else:
        print_line(str(prompt))
