"""`pkb-arena watch`: judge a kernel on every save, beside whatever editor it is written in."""

import asyncio
import dataclasses
import time
from pathlib import Path

import click

from arena.cli.diagnostics import say
from arena.cli.interrupts import run_interruptibly
from arena.cli.options import json_option, kernel_argument, problem_argument, rounds_option, setting_options
from arena.cli.output import OutputClosed, compact, print_json, print_line
from arena.cli.progress import Progress
from arena.cli.request import make_request
from arena.cli.session import Session, open_session
from arena.engine import Engine
from arena.errors import UsageError
from arena.results import RunReport, report
from arena.run_request import RunRequest
from arena.setting_choice import Choice
from arena.watcher import KernelWatcher
from arena.workspace import content_hash
from sandbox.events import AnyEvent, Finished, Refused


@click.command()
@problem_argument
@kernel_argument
@setting_options
@rounds_option
@json_option
def command(problem: str, kernel: Path, choice: Choice, rounds: int | None, as_json: bool) -> None:
    """Judge KERNEL now and on every save, until ctrl+c. With --json each result is one line."""
    session = open_session()
    request = make_request(session, problem, kernel, choice, rounds)
    if not request.kernel_path:
        raise UsageError(f"the {kernel} does not change, so there is nothing to watch", "name a kernel file")
    run_interruptibly(_watch(session, request, kernel, as_json))


async def _watch(session: Session, request: RunRequest, kernel: Path, as_json: bool) -> None:
    progress = Progress()
    stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    """Done, with the reason, when no further save can be judged or told."""
    async with Engine(session.paths) as engine:

        def show(event: AnyEvent) -> None:
            progress.event(event)
            if stop.done():
                return
            if isinstance(event, Refused):  # the setting does not fit, and no save changes that
                stop.set_exception(UsageError(event.message, event.advice))
            elif isinstance(event, Finished):
                progress.clear()
                try:
                    _print_result(report(engine.header(event.run_id), event.result), as_json)
                except OutputClosed as error:
                    stop.set_exception(error)

        unsubscribe = engine.subscribe(show)
        engine.subscribe_notices(progress.notice)
        await engine.start()
        say(f"watching {kernel}; save it to judge it, ctrl+c ends")
        watcher = KernelWatcher(kernel, content_hash(request.source))
        judging: asyncio.Future[None] = asyncio.create_task(_judge_saves(engine, request, watcher))
        try:
            done, _ = await asyncio.wait([judging, stop], return_when=asyncio.FIRST_COMPLETED)
            done.pop().result()
        finally:
            judging.cancel()
            unsubscribe()
            progress.clear()


def _print_result(result: RunReport, as_json: bool) -> None:
    if as_json:
        print_json(result)
    else:
        print_line(f"{time.strftime('%H:%M:%S')}  {compact(result)}")


async def _judge_saves(engine: Engine, request: RunRequest, watcher: KernelWatcher) -> None:
    await engine.run(request)
    async for kernel in watcher:
        await engine.run(dataclasses.replace(request, source=kernel.text))
