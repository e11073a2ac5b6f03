"""`pkb-arena run`: judges one kernel once."""

from dataclasses import replace
from pathlib import Path

import click

from arena.cli import options
from arena.cli.diagnostics import LiveLine, complain, say
from arena.cli.interrupts import run_interruptibly
from arena.cli.options import CliSession, open_session
from arena.cli.output import print_json, print_report, speedup_text, while_it_is_read
from arena.cli.runs.request import make_request
from arena.records.run_record import RunRecord, json_of
from arena.runs.engine import Engine
from arena.runs.judge import judge_to_end
from arena.runs.other_sizes import OtherSizesProgress, with_other_sizes
from arena.runs.run_request import Notice, RunRequest
from arena.runs.run_state import RunState
from arena.setting_choice import Choice, choice_of
from arena.words.headline import headline_so_far
from sandbox.protocol.events import PHASES, AnyEvent, Log, PhaseEnded, PhaseStarted, RunStarted
from sandbox.protocol.verdict import Verdict, exit_code


class RunProgress:
    """Shows the events of the engine."""

    def __init__(self, most_s: float | None = None) -> None:
        """most_s: maximum seconds of timing; None: unknown, or the number of rounds is fixed."""
        self._most_s = most_s
        self._state = RunState()
        self._shown = LiveLine()

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

    def notice(self, notice: Notice) -> None:
        """Shows a notice on a line of its own."""
        self.clear()
        complain(notice.message, notice.advice)

    def other_size(self, progress: OtherSizesProgress) -> None:
        """Shows which other setting is judged next. Uses its limit for timing from now on."""
        self.clear()
        self._most_s = progress.most_s
        say(progress.words)

    def clear(self) -> None:
        """Erases the redrawn line."""
        self._shown.clear()

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
            print_json(json_of(judged))
        else:
            print_report(judged, choice_of(request.setting, request.problem).sizes)
    verdicts = [judged.verdict, *([judged.rival.verdict] if judged.rival else [])]
    ctx.exit(next((exit_code(each) for each in verdicts if each is not Verdict.PASS), 0))


async def _judge(session: CliSession, request: RunRequest, other_sizes: bool) -> RunRecord:
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
