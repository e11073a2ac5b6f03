"""`pkb-arena agent`: a model writes a kernel, reads the verdict, and improves it."""

from dataclasses import replace

import click

from arena.cli.options import Whole, json_option
from arena.cli.players.writing import write_and_print
from arena.cli.players.writing_plan import Plan, plan_options
from arena.players.agent import PATIENCE, STEPS


@click.command()
@plan_options
@click.option("--steps", type=Whole(1, 1000), default=STEPS, show_default=True, metavar="N", help="Most answers.")
@click.option(
    "--patience",
    type=Whole(0, 1000),
    default=PATIENCE,
    show_default=True,
    metavar="N",
    help="Stop after N answers without a gain; 0: no such limit.",
)
@json_option
@click.pass_context
def command(ctx: click.Context, plan: Plan, as_json: bool) -> None:
    """Have a model write a kernel for PROBLEM, judge it, and let it improve the kernel by the verdicts.

    It plays as agent:M. `pkb-arena replay TRACE` shows its work.
    """
    report = write_and_print(replace(plan, feedback=True), as_json)
    ctx.exit(report.exit_code)
