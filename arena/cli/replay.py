"""`pkb-arena replay`: prints a recorded run, duel or trace."""

from pathlib import Path

import click
import msgspec

from arena.cli.duel.replay_duel import find_duel, tell_duel
from arena.cli.options import json_option
from arena.cli.output import print_json, print_line, print_report, speedup_text
from arena.cli.players.trace_lines import is_trace, tell_trace
from arena.cli.session import open_session
from arena.errors import UsageError
from arena.paths import Paths
from arena.runs.headline import headline_so_far
from arena.runs.journal import read_events, read_header
from arena.runs.results import report
from sandbox.protocol.events import (
    AnyEvent,
    Cancelled,
    Checked,
    Finished,
    PhaseEnded,
    RankChecked,
    Refused,
    Timed,
)


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
        why = f": {error.strerror}" if isinstance(error, OSError) else ""
        raise UsageError(
            f"{path} cannot be told again{why}", "a file must be the journal of a run, a duel or a trace"
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
        journals = sorted(runs.glob("*.jsonl"))
        if not journals:
            raise UsageError("nothing was run yet", "`pkb-arena run 1 baseline` is a first run")
        return journals[-1]
    places = [Path(run), *(folder / f"{run}.jsonl" for folder in (paths.traces, runs))]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise UsageError(f"there is no run, duel or trace {run!r}, and no such file", _recent(paths))
    return found


def _recent(paths: Paths) -> str:
    """What there is to replay."""
    stems = [
        path.stem for folder in (paths.runs, paths.duels, paths.traces) for path in folder.glob("*.jsonl")
    ]
    if not stems:
        return "nothing was run yet: `pkb-arena run 1 baseline` is a first run"
    return f"the last ones are {', '.join(sorted(stems)[-3:])}"


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
            return f"round {event.round}/{event.rounds}  {speedup_text(headline_so_far(event))}"
        case Cancelled():
            return f"cancelled in {event.phase}"
        case Refused():
            return f"refused: {event.message}"
        case _:
            return ""
