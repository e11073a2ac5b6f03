"""`pkb-arena replay`: a recorded run, told again."""

from pathlib import Path

import click
import msgspec

from arena.cli.options import json_option
from arena.cli.output import print_json, print_line, print_report, speedup_text
from arena.cli.replay_duel import find_duel, tell_duel
from arena.cli.session import open_session
from arena.cli.trace_lines import is_trace, tell_trace
from arena.errors import UsageError
from arena.journal import read_events, read_header
from arena.results import report
from sandbox.events import AnyEvent, Cancelled, Checked, Finished, PhaseEnded, RankChecked, Refused, Timed


@click.command()
@click.argument("run", metavar="RUN", default="last")
@click.option("--source", is_flag=True, help="Print the kernel that was run, and nothing else.")
@click.option(
    "--speed", type=click.FloatRange(1, 20), metavar="X",
    help="Tell a duel at X times its pace, 1 to 20. [default: at once]",
)  # fmt: skip
@json_option
def command(run: str, source: bool, speed: float | None, as_json: bool) -> None:
    """Tell RUN again: the id of a run, a duel or a model's trace, a journal file, or `last`.

    With --json its events, one a line.
    """
    if run != "last" and (duel := find_duel(run, open_session().paths)):
        tell_duel(*duel, speed, as_json)
        return
    path = _journal(run)
    if is_trace(path):
        tell_trace(path, as_json, source)
        return
    try:
        header = read_header(path)
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(
            f"{path} is no journal of a run: {error}", "`pkb-arena config path runs` shows where they are"
        ) from None
    if source:
        print_line(header.source.rstrip("\n"))
        return
    if as_json:
        print_json(header)
    for event in read_events(path):
        if as_json:
            print_json(event)
        elif line := _line(event):
            print_line(line)
        if isinstance(event, Finished) and not as_json:
            print_report(report(header, event.result))


def _journal(run: str) -> Path:
    paths = open_session().paths
    runs = paths.runs
    if run == "last":
        found = sorted(runs.glob("*.jsonl"))
        if not found:
            raise UsageError("nothing was run yet", "`pkb-arena run 1 baseline` is a first run")
        return found[-1]
    path = Path(run)
    trace = paths.traces / f"{run}.jsonl"
    return path if path.is_file() else trace if trace.is_file() else runs / f"{run}.jsonl"


def _line(event: AnyEvent) -> str:
    match event:
        case PhaseEnded():
            return f"{event.phase} {event.seconds:.2f} s"
        case RankChecked():
            worst = max(event.outputs, key=lambda output: output.rms, default=None)
            return f"rank {event.rank} {'✓' if event.ok else '✗'}" + (
                f" rms {worst.rms:.2e}" if worst else ""
            )
        case Checked():
            return f"checked after {event.seconds:.2f} s: {event.verdict}"
        case Timed():
            return f"round {event.round}/{event.rounds}  {speedup_text(event.call, '')}"
        case Cancelled():
            return f"cancelled in {event.phase}"
        case Refused():
            return f"refused: {event.message}"
        case _:
            return ""
