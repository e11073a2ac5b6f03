"""`pkb-arena watch`: judges a kernel on every save, by any editor."""

import asyncio
import dataclasses
import time
from pathlib import Path

import click

from arena.cli import options
from arena.cli.diagnostics import complain, say
from arena.cli.interrupts import run_interruptibly
from arena.cli.options import CliSession, open_session
from arena.cli.output import compact, print_json, print_line
from arena.cli.runs.request import make_request
from arena.cli.runs.run import RunProgress
from arena.errors import RunCancelled, UsageError
from arena.records.run_record import json_of
from arena.runs.engine import Engine
from arena.runs.judge import RunInProgress
from arena.runs.run_request import RunRequest
from arena.setting_choice import Choice
from arena.workspace.watcher import KernelWatcher
from sandbox.protocol.kernel_files import kernel_hash


@click.command()
@options.problem_argument
@options.kernel_argument
@options.setting_options
@options.rounds_option
@options.budget_option
@options.json_option
def command(
    problem: str, kernel: Path, choice: Choice, rounds: int | None, budget: float | None, as_json: bool
) -> None:
    """Judge KERNEL now and on every save, until ctrl+c. With --json each result is one line."""
    session = open_session()
    request = make_request(session, problem, kernel, choice, rounds, budget)
    if not request.kernel_path:
        raise UsageError(f"the {kernel} does not change, so there is nothing to watch", "name a kernel file")
    run_interruptibly(_watch(session, request, kernel, as_json))


async def _watch(session: CliSession, request: RunRequest, kernel: Path, as_json: bool) -> None:
    progress = RunProgress(request.most_s)
    async with Engine(session.paths) as engine:
        unsubscribe = engine.subscribe(progress.event)
        engine.subscribe_notices(progress.notice)
        await engine.start()
        say(f"watching {kernel}; save it to judge it, ctrl+c ends")
        watcher = KernelWatcher(kernel, kernel_hash(request.source, request.files))
        try:
            await _judge_saves(engine, request, watcher, progress, as_json)
        except BaseExceptionGroup as group:  # a setting that cannot run, or a closed stdout
            raise group.exceptions[0] from None
        finally:
            unsubscribe()
            progress.clear()


async def _judge_saves(
    engine: Engine, request: RunRequest, watcher: KernelWatcher, progress: RunProgress, as_json: bool
) -> None:
    """Judges the request, then each save with the request's setting. Raises an exception group."""
    async with asyncio.TaskGroup() as waiting:
        run = await engine.judge(request)
        waiting.create_task(_print_result(run, progress, as_json))
        async for save in watcher:
            if isinstance(save, UsageError):
                progress.clear()
                complain(save.message, save.advice)
                continue
            run = await engine.judge(dataclasses.replace(request, source=save.text, files=save.files))
            waiting.create_task(_print_result(run, progress, as_json))


async def _print_result(run: RunInProgress, progress: RunProgress, as_json: bool) -> None:
    """Prints the result; prints nothing if a newer save cancelled the run."""
    try:
        report = (await run.result()).report
    except RunCancelled:
        return
    progress.clear()
    if as_json:
        print_json(json_of(report))
    else:
        print_line(f"{time.strftime('%H:%M:%S')}  {compact(report)}")
