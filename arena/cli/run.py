"""`pkb-arena run` judges a kernel once, `pkb-arena watch` on every save."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from arena.cli import options
from arena.cli.display import run_interruptibly
from arena.cli.options import CliSession, open_session
from arena.cli.output import (
    LiveLine,
    compact,
    complain,
    print_json,
    print_line,
    print_report,
    say,
    speedup_text,
    while_it_is_read,
)
from arena.errors import RunCancelled, UsageError
from arena.records.run_record import RunRecord, json_of, view
from arena.runs.engine import Engine
from arena.runs.judge import RunInProgress, RunRequest, judge_to_end
from arena.runs.other_sizes import OtherSizesProgress, with_other_sizes
from arena.runs.run_state import RunState
from arena.setting_choice import Choice, choice_of, choose_setting
from arena.words.headline import headline_so_far
from arena.workspace.kernels import kernel_text, read_kernel
from arena.workspace.named_kernels import HOUSE, VARIANTS, named_kernel
from arena.workspace.watcher import KernelWatcher
from problems.specification import Problem
from sandbox.protocol.events import PHASES, AnyEvent, Contender, Log, PhaseEnded, PhaseStarted, RunStarted
from sandbox.protocol.kernel_files import Kernel
from sandbox.protocol.verdict import Verdict, exit_code

STDIN = "-"


def make_request(
    session: CliSession,
    problem: str,
    kernel: Path,
    choice: Choice,
    seconds: float | None = None,
    against: Path | None = None,
    **terms: Any,
) -> RunRequest:
    """Returns the request, with all checks that need no run.

    seconds: replaces the setting of that name. against: a kernel that replaces the baseline. terms: as of `RunTerms`.

    Raises:
        ArenaError: the problem, the kernel file or the setting cannot be run.
    """
    found = session.problem(problem)
    setting = choose_setting(found, choice, session.settings)
    name, path, text = _kernel(session, found, kernel, setting.device)
    rival = _kernel(session, found, against, setting.device) if against is not None else None
    return view(
        RunRequest, text,
        problem=found,
        setting=setting,
        player=str(kernel) if str(kernel) in (HOUSE, *VARIANTS) else "you",
        kernel_name=name,
        kernel_path=path,
        budget_s=session.settings.seconds if seconds is None else seconds,
        versus=Contender(rival[0], rival[2].source, rival[2].files) if rival is not None else None,
        **terms,
    )  # fmt: skip


def _kernel(session: CliSession, problem: Problem, kernel: Path, device: str) -> tuple[str, str, Kernel]:
    """Returns name, path and files of the kernel given by an argument."""
    if named := named_kernel(str(kernel), problem, session.catalogue, device):
        return named[0], "", Kernel(named[1])
    if str(kernel) == STDIN:
        if sys.__stdin__ is None:
            raise UsageError("standard input is closed", "send the kernel to it, or name a file")
        return "stdin.py", "", Kernel(kernel_text(sys.stdin.buffer, "standard input"))
    found = read_kernel(kernel)
    return found.name, str(kernel.absolute()), found.kernel


class RunProgress:
    """Shows the events of the engine."""

    def __init__(self, most_s: float | None = None) -> None:
        """most_s: maximum seconds of timing; None: unknown, or the number of rounds is fixed."""
        self._most_s = most_s
        self._state = RunState()
        self._shown = LiveLine()
        self.notice, self.clear = self._shown.notice, self._shown.clear

    def event(self, event: AnyEvent) -> None:
        """Updates the display after an event."""
        self._state.apply(event)
        if isinstance(event, Log) and event.rank < 0:
            self.clear()
            say(event.text.rstrip())
        elif self._shown.live:
            self._shown.draw(self._line(), force=isinstance(event, PhaseStarted | PhaseEnded))
        elif isinstance(event, PhaseEnded):
            say(f"{event.phase} {event.seconds:.2f} s")
        elif isinstance(event, RunStarted):
            setting = event.setting
            where = f"world {setting.world} {setting.device}"
            say(f"{event.kernel_name}: {setting.preset} {setting.dtype} {where}")

    def other_size(self, progress: OtherSizesProgress) -> None:
        """Shows which other setting is judged next. Uses its limit for timing from now on."""
        self.clear()
        self._most_s = progress.most_s
        say(progress.words)

    def _line(self) -> str:
        parts = []
        for name in PHASES:
            phase = self._state.phases.get(name)
            if phase is None:
                continue
            parts.append(f"✓{name} {phase.seconds:.2f}" if phase.seconds is not None else f"▸{name}")
        if self._state.samples:
            sample = self._state.samples[-1]
            parts.append(f"{sample.round}/{sample.rounds}")
            parts.append(speedup_text(headline_so_far(sample)))
            if self._state.phase == "time" and self._most_s is not None:
                parts.append(f"goes on up to {self._most_s:g} s")
        return "  ".join(parts)


@click.command()
@options.problem_argument
@options.kernel_argument
@options.setting_options
@options.rounds_option
@options.seconds_option
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
def run(
    ctx: click.Context, /, problem: str, kernel: Path, choice: Choice, other_sizes: bool, as_json: bool, **terms: Any
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
    request = make_request(session, problem, kernel, choice, **terms)
    judged = run_interruptibly(_judge(session, request, other_sizes))
    with while_it_is_read():
        if as_json:
            print_json(json_of(judged))
        else:
            print_report(judged, choice_of(request.setting, request.problem).sizes)
    verdicts = [judged.verdict, *([judged.rival.verdict] if judged.rival else [])]
    ctx.exit(next((exit_code(each) for each in verdicts if each is not Verdict.PASS), 0))


@asynccontextmanager
async def _engine(session: CliSession, request: RunRequest) -> AsyncIterator[tuple[Engine, RunProgress]]:
    """Yields the started engine, and what shows its events meanwhile."""
    progress = RunProgress(request.most_s)
    async with Engine(session.paths, notify=progress.notice) as engine:
        unsubscribe = engine.subscribe(progress.event)
        try:
            await engine.start()
            yield engine, progress
        finally:
            unsubscribe()
            progress.clear()


async def _judge(session: CliSession, request: RunRequest, other_sizes: bool) -> RunRecord:
    async with _engine(session, request) as (engine, progress):
        judged = (await judge_to_end(engine, request)).report
        if other_sizes and judged.verdict is Verdict.PASS:
            judged = await with_other_sizes(engine, request, judged, progress.other_size)
        return judged


@click.command()
@options.problem_argument
@options.kernel_argument
@options.setting_options
@options.rounds_option
@options.seconds_option
@options.json_option
def watch(problem: str, kernel: Path, choice: Choice, as_json: bool, **terms: Any) -> None:
    """Judge KERNEL now and on every save, until ctrl+c. With --json each result is one line."""
    session = open_session()
    request = make_request(session, problem, kernel, choice, **terms)
    if not request.kernel_path:
        raise UsageError(f"the {kernel} does not change, so there is nothing to watch", "name a kernel file")
    run_interruptibly(_watch(session, request, kernel, as_json))


async def _watch(session: CliSession, request: RunRequest, kernel: Path, as_json: bool) -> None:
    async with _engine(session, request) as (engine, progress):
        say(f"watching {kernel}; save it to judge it, ctrl+c ends")
        watcher = KernelWatcher(kernel, request.kernel.sha256)
        try:
            await _judge_saves(engine, request, watcher, progress, as_json)
        except BaseExceptionGroup as group:  # a setting that cannot run, or a closed stdout
            raise group.exceptions[0] from None


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
            run = await engine.judge(replace(request, source=save.text, files=save.files))
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
