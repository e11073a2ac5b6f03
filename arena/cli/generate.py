"""`pkb-arena generate` and `agent`: a model writes kernels, they are judged, the best one is saved."""

from dataclasses import replace
from pathlib import Path

import click

from arena.cli.display import run_interruptibly
from arena.cli.options import json_option, number_option
from arena.cli.output import complain, print_found, say, while_it_is_read
from arena.cli.run import RunProgress
from arena.cli.writing_output import WritingProgress, WritingReport, report_of, writing_lines
from arena.cli.writing_plan import Plan, plan_options, player_of, setup_of
from arena.paths import NAMED, make_folder, write_named_file, writing
from arena.players.agent import PATIENCE, STEPS
from arena.players.judge_access import JudgeAccess, keep_revisions, save_best
from arena.players.player import Player
from arena.players.trace import AnyTraceEvent, Asked
from arena.records.run_record import fields_of
from arena.runs.engine import Engine
from arena.runs.judge import Judgement
from arena.workspace.kernel_folder import write_folder
from arena.workspace.kernels import Workspace
from sandbox.protocol.kernel_files import MAIN, Kernel
from sandbox.protocol.verdict import ExitCode


def write_and_print(plan: Plan, as_json: bool) -> WritingReport:
    """Lets the model write kernels, and prints the result.

    Raises:
        ArenaError: the provider, the judge or the machine failed.
        UsageError, FolderUnwritable: as `player_of`.
    """
    report = run_interruptibly(write_kernels(plan, player_of(plan)))
    with while_it_is_read():
        print_found(as_json, report, *writing_lines(report))
    return report


async def write_kernels(plan: Plan, player: Player) -> WritingReport:
    """Lets the model write kernels and judges them. Keeps the best kernel so far even after an error.

    Raises:
        ArenaError: the provider, the judge or the machine failed.
    """
    run_progress, progress, task = RunProgress(), WritingProgress(str(player.name)), plan.task
    compared: Judgement | None = None

    def hear(event: AnyTraceEvent) -> None:
        if access.header is not None and isinstance(event, Asked) and event.step == 1:
            say(f"trace {access.header.trace_id}")
        run_progress.clear()
        progress.event(event)

    engine = Engine(plan.session.paths, notify=run_progress.notice)
    access = JudgeAccess(
        engine,
        task,
        str(player.name),
        **fields_of(plan, "steps rounds unsafe other_sizes"),
        budget_s=plan.session.settings.seconds,
        hear=hear,
        warn=complain,
        hear_other_size=run_progress.other_size,
    )
    access.judges = plan.run
    path: Path | None = None
    try:
        async with engine:
            if plan.run:
                # Events of worlds that start while the model writes must not overwrite its line.
                engine.subscribe(lambda event: run_progress.event(event) if engine.running else None)
                await access.start()
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
    return report_of(plan, access, path, compared)


def _keep(plan: Plan, access: JudgeAccess) -> Path | None:
    """Writes the best kernel to its file, and all kernels to the workspace as revisions."""
    workspace = Workspace(plan.session.paths.workspace)
    best = keep_revisions(workspace, access.attempts)
    if best is None or access.header is None:
        return None
    if plan.output is None:
        return save_best(workspace, plan.problem, access.header.player, best)
    make_folder(plan.output.absolute().parent, NAMED)
    if best.kernel.files:
        return _write_folder(plan.output, best.answer.kernel)
    write_named_file(plan.output, best.answer.source)
    return plan.output


def _write_folder(path: Path, kernel: Kernel) -> Path:
    """Writes a kernel of several files in place of a file, as FOLDER/kernel.py into FOLDER if that is empty.

    If there is such a folder, adds the kernel's hash to its name.
    """
    inside = path.name == MAIN and path.parent != Path() and not any(path.parent.iterdir())
    folder = path.parent if inside else path.with_suffix("")
    if folder.exists() and not inside:
        folder = folder.with_name(f"{folder.name}-{kernel.sha256[:8]}")
    with writing(folder.absolute().parent, NAMED):
        write_folder(folder, kernel, mode=0o644)
    return folder


@click.command()
@plan_options
@click.option("--print-prompt", is_flag=True, help="Print the prompt, and call no model.")
@number_option(
    "--attempts",
    within=(1, 1000),
    metavar="K",
    default=1,
    help="Independent answers; the best one is kept, and pass@k is printed.",
)
@click.option("--no-run", is_flag=True, help="Write kernels without judging them.")
@json_option
@click.pass_context
def generate(ctx: click.Context, plan: Plan, print_prompt: bool, attempts: int, no_run: bool, as_json: bool) -> None:
    """Have a model write a kernel for PROBLEM, and judge it. It plays as model:M, without feedback."""
    if print_prompt:
        prompt = setup_of(plan).prompt(plan.task)
        print_found(as_json, fields_of(prompt, "version shots sha256 conversation"), str(prompt))
        return
    report = write_and_print(replace(plan, steps=attempts, run=not no_run), as_json)
    written = no_run and report.kernel is not None and not report.provider_failed
    ctx.exit(ExitCode.PASS if written else report.exit_code)


@click.command()
@plan_options
@number_option("--steps", within=(1, 1000), default=STEPS, help="Most answers.")
@number_option(
    "--patience", within=(0, 1000), default=PATIENCE, help="Stop after N answers without a gain; 0: no such limit."
)
@json_option
@click.pass_context
def agent(ctx: click.Context, plan: Plan, as_json: bool) -> None:
    """Have a model write a kernel for PROBLEM, judge it, and let it improve the kernel by the verdicts.

    It plays as agent:M. `pkb-arena replay TRACE` shows its work.
    """
    report = write_and_print(replace(plan, feedback=True), as_json)
    ctx.exit(report.exit_code)
