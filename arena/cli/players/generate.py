"""`pkb-arena generate`: a model writes a kernel."""

from dataclasses import replace

import click

from arena.cli.options import Whole, json_option
from arena.cli.output import print_json, print_line
from arena.cli.players.writing import write_and_print
from arena.cli.players.writing_plan import Plan, plan_options
from arena.players.prompts.prompt import Prompt, build_prompt
from sandbox.protocol.verdict import ExitCode


@click.command()
@plan_options
@click.option("--print-prompt", is_flag=True, help="Print the prompt, and call no model.")
@click.option(
    "--attempts",
    type=Whole(1, 1000),
    default=1,
    show_default=True,
    metavar="K",
    help="Independent answers; the best one is kept, and pass@k is printed.",
)
@click.option("--no-run", is_flag=True, help="Write kernels without judging them.")
@json_option
@click.pass_context
def command(ctx: click.Context, plan: Plan, print_prompt: bool, attempts: int, no_run: bool, as_json: bool) -> None:
    """Have a model write a kernel for PROBLEM, and judge it. It plays as model:M, without feedback."""
    if print_prompt:
        session = plan.session
        prompt = build_prompt(
            plan.problem,
            plan.setting,
            session.catalogue,
            session.paths,
            plan.shots,
            origin=plan.origin,
            backend=plan.backend,
        )
        _print(prompt, as_json)
        return
    report = write_and_print(replace(plan, steps=attempts, run=not no_run), as_json)
    written = no_run and report.kernel is not None and not report.provider_failed
    ctx.exit(ExitCode.PASS if written else report.exit_code)


def _print(prompt: Prompt, as_json: bool) -> None:
    if as_json:
        fields = ("version", "shots", "sha256", "conversation")
        print_json({name: getattr(prompt, name) for name in fields})
    else:
        print_line(str(prompt))
