"""`pkb-arena watch`: judge a kernel on every save, beside whatever editor it is written in."""

import asyncio
import dataclasses
import time
from pathlib import Path

import click

from arena.cli.diagnostics import say
from arena.cli.interrupts import run_interruptibly
from arena.cli.options import json_option, kernel_argument, problem_argument, rounds_option, setting_options
from arena.cli.output import compact, print_json, print_line
from arena.cli.progress import Progress
from arena.cli.request import make_request
from arena.cli.session import Session, open_session
from arena.engine import Engine, RunRequest
from arena.errors import UsageError
from arena.results import report
from arena.setting_choice import Choice
from arena.store import BASELINE
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
    if request.kernel_name == BASELINE:
        raise UsageError("the baseline does not change, so there is nothing to watch", "name a kernel file")
    run_interruptibly(_watch(session, request, kernel, as_json))


async def _watch(session: Session, request: RunRequest, kernel: Path, as_json: bool) -> None:
    progress = Progress()
    refused: asyncio.Future[Refused] = asyncio.get_running_loop().create_future()
    async with Engine(session.paths) as engine:

        def show(event: AnyEvent) -> None:
            progress.event(event)
            if isinstance(event, Finished):
                progress.clear()
                result = report(engine.header(event.run_id), event.result)
                if as_json:
                    print_json(result)
                else:
                    print_line(f"{time.strftime('%H:%M:%S')}  {compact(result)}")
            elif isinstance(event, Refused) and not refused.done():
                refused.set_result(event)

        unsubscribe = engine.subscribe(show)
        engine.subscribe_notices(progress.notice)
        await engine.start()
        say(f"watching {kernel}; save it to judge it, ctrl+c ends")
        judging = asyncio.create_task(
            _judge_saves(engine, request, KernelWatcher(kernel, content_hash(request.source)))
        )
        refused.add_done_callback(
            lambda _: judging.cancel()
        )  # the setting does not fit, and no save changes that
        try:
            await judging
        except asyncio.CancelledError:
            if refused.done():
                raise UsageError(refused.result().message, refused.result().advice) from None
            raise
        finally:
            judging.cancel()
            unsubscribe()
            progress.clear()


async def _judge_saves(engine: Engine, request: RunRequest, watcher: KernelWatcher) -> None:
    await engine.run(request)
    async for kernel in watcher:
        await engine.run(dataclasses.replace(request, source=kernel.text))
