"""`pkb-arena run`: judges one kernel once."""

from dataclasses import replace
from pathlib import Path

import click

from arena.cli import options
from arena.cli.interrupts import run_interruptibly
from arena.cli.options import CliSession, open_session
from arena.cli.output import print_json, print_report, while_it_is_read
from arena.cli.runs.progress import RunProgress
from arena.cli.runs.request import make_request
from arena.records.report import RunReport
from arena.runs.engine import Engine
from arena.runs.judge import judge_to_end
from arena.runs.other_sizes import with_other_sizes
from arena.runs.run_request import RunRequest
from arena.setting_choice import Choice, choice_of
from sandbox.protocol.verdict import Verdict, exit_code


@click.command()
@options.problem_argument
@options.kernel_argument
@options.setting_options
@options.rounds_option
@options.budget_option
@click.option(
    "--against",
    type=click.Path(path_type=Path, readable=False),
    metavar="KERNEL",
    help="Time KERNEL against this one, in place of the baseline.",
)
@click.option(
    "--other-sizes",
    is_flag=True,
    help="After a PASS judge three random legal settings, too; time a faster kernel in two of them.",
)
@click.option("--energy", is_flag=True, help="Measure power and energy a call on GPUs, too, after timing; about 2 s.")
@options.json_option
@click.pass_context
def command(
    ctx: click.Context,
    problem: str,
    kernel: Path,
    choice: Choice,
    rounds: int | None,
    budget: float | None,
    against: Path | None,
    other_sizes: bool,
    energy: bool,
    as_json: bool,
) -> None:
    """Judge KERNEL, a Python file with solution(...), a folder with such a kernel.py, or `baseline` or `house`.

    - is standard input.

    On GPUs also `baseline-graph`, the baseline in a CUDA graph, and for plain collectives `baseline-windows` and
    `baseline-copy-engine`, NCCL on registered memory by its own kernels and by copy engines.

    With --other-sizes a kernel that passes here and fails elsewhere is marked as made for one size. For a faster
    kernel the report says whether it is also faster at the other sizes: all, some or none. A setting counts if the kernel
    is wrong there, or its time is not too noisy. The exit code is that of the requested setting. With --against exit code 1
    also says that the other kernel failed.
    """
    session = open_session()
    request = replace(make_request(session, problem, kernel, choice, rounds, budget, against), energy=energy)
    judged = run_interruptibly(_judge(session, request, other_sizes))
    with while_it_is_read():
        if as_json:
            print_json(judged)
        else:
            print_report(judged, choice_of(request.setting, request.problem).sizes)
    verdicts = [judged.verdict, *([judged.rival.verdict] if judged.rival else [])]
    ctx.exit(next((exit_code(each) for each in verdicts if each is not Verdict.PASS), 0))


async def _judge(session: CliSession, request: RunRequest, other_sizes: bool) -> RunReport:
    progress = RunProgress(request.most_s)
    async with Engine(session.paths) as engine:
        unsubscribe = engine.subscribe(progress.event)
        engine.subscribe_notices(progress.notice)
        try:
            await engine.start()
            judged = (await judge_to_end(engine, request)).report
            if other_sizes and judged.verdict is Verdict.PASS:
                judged = await with_other_sizes(engine, request, judged, progress.other_size)
            return judged
        finally:
            unsubscribe()
            progress.clear()
