"""`pkb-arena replay` prints a recorded run, duel or trace, or writes it as a file that plays without pkb-arena."""

import re
from collections.abc import Mapping
from pathlib import Path

import click

from arena.cli.display import display_of, drawn_by
from arena.cli.duel import tell_duel
from arena.cli.options import complete_result, file_option, json_option, number_option, open_session
from arena.cli.output import print_found, print_json, print_line, print_report, speedup_text
from arena.cli.writing_output import tell_trace
from arena.duel.events import DuelHeader
from arena.duel.journal import AnyHeader, read_any_header
from arena.errors import UsageError
from arena.paths import Paths, files_in, require_writable
from arena.players.trace import TraceHeader
from arena.records.code_hash import code_hash
from arena.records.header import RunHeader, read_events
from arena.records.run_record import record_of
from arena.records.voids import read_voids
from arena.setting_choice import choice_of
from arena.words.headline import headline_so_far
from arena.workspace.kernel_folder import shown_text
from sandbox.protocol import events

KINDS = (".cast", ".svg")
SMALLEST, LARGEST = (60, 20), (240, 80)


def check_target(path: Path) -> Path:
    """Checks the path of a recording and returns it.

    Raises:
        UsageError: its suffix is not one of KINDS.
        FolderUnwritable: its folder is not writable.
    """
    if path.suffix.lower() not in KINDS:
        raise UsageError(f"{path} is no kind of recording", "name a file.cast (asciicast) or file.svg (animated)")
    require_writable(path)
    return path


def parse_size(text: str) -> tuple[int, int]:
    """Parses a recording's size: (100, 30) for "100x30".

    Raises:
        UsageError: it is not two numbers, or out of bounds.
    """
    found = re.fullmatch(r"(\d+)x(\d+)", text.lower())
    size = (int(found[1]), int(found[2])) if found else (0, 0)
    if not (SMALLEST[0] <= size[0] <= LARGEST[0] and SMALLEST[1] <= size[1] <= LARGEST[1]):
        raise UsageError(f"{text!r} is no size of a recording", "COLUMNSxLINES from 60x20 to 240x80, as 100x30")
    return size


@click.command()
@click.argument("run", metavar="[RUN]", default="last", shell_complete=complete_result)
@click.option("--source", is_flag=True, help="Print only the kernel that was run.")
@number_option(
    "--speed", within=(1, 20), kind=float, metavar="X", help="Replay a duel at X times its pace. [default: at once]"
)
@file_option("--record", help="Write a run or a duel as a recording: FILE.cast (asciicast) or FILE.svg (animated).")
@click.option("--size", default="100x30", show_default=True, metavar="CxL", help="Columns and lines of a recording.")
@click.option("--theme", default="", metavar="NAME", help="Colours of a recording. [default: the settings']")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    run: str,
    source: bool,
    speed: float | None,
    record: Path | None,
    size: str,
    theme: str,
    as_json: bool,
) -> None:
    """Replay RUN: the id of a run, a duel or a model's trace, a journal file, or `last`.

    With --json its events are printed, one a line. With --record it is written as a file that others can play; --speed
    makes that faster, too.
    """
    if source and as_json:
        raise UsageError("--source prints a kernel's text", "without it, --json has the text in its fields `source`")
    journal, header = _recorded(run)
    if source and isinstance(header, DuelHeader):
        raise UsageError(f"{run} is a duel, of many kernels", "--source prints the kernel of a run")
    if record is not None:
        if isinstance(header, TraceHeader):
            raise UsageError("a trace cannot be recorded", "its runs can: `pkb-arena replay RUN --record FILE`")
        target, shape = check_target(record), parse_size(size)
        draw = drawn_by(display_of(ctx).record, "record with `pkb-arena replay --record`")
        seconds = draw(journal, header, target, shape, speed or 1.0, theme, open_session().settings)
        found = {"file": str(target), "seconds": round(seconds, 3), "bytes": target.stat().st_size}
        print_found(as_json, found, f"{target}: {seconds:.0f} s, {target.stat().st_size >> 10} KiB")
    elif isinstance(header, DuelHeader):
        tell_duel(journal, header, speed, as_json)
    elif isinstance(header, TraceHeader):
        tell_trace(journal, header, as_json, source)
    elif source:
        print_line(shown_text(header.kernel).rstrip("\n"))
    else:
        _tell_run(journal, header, as_json)


def _tell_run(path: Path, header: RunHeader, as_json: bool) -> None:
    """Prints a run's events, as text with its report at the end."""
    if as_json:
        print_json(header)
    for event in read_events(path):
        if as_json:
            print_json(event)
        elif line := _line(event):
            print_line(line)
        if isinstance(event, events.Finished) and not as_json:
            print_report(record_of(header, event.result), _overridden(header))
            voids = read_voids(open_session().paths.voids)
            if (void := voids.of(header.run_id, code_hash(header.kernel))) is not None:
                print_line(void.words)


def _overridden(header: RunHeader) -> Mapping[str, int]:
    """Returns the sizes that differ from the preset; all sizes if the problem is not in the catalogue any more."""
    if header.preset_sizes:
        return {}
    known = (problem for problem in open_session().catalogue.problems if problem.slug == header.slug)
    differ = (choice_of(header.setting, problem).sizes for problem in known)
    return next(differ, None) or header.setting.sizes


def _recorded(run: str) -> tuple[Path, AnyHeader]:
    """Returns the journal that a word names, and its first line."""
    path = _journal(run)
    try:
        return path, read_any_header(path)
    except (OSError, ValueError) as error:
        why = f": {error.strerror}" if isinstance(error, OSError) else ""
        raise UsageError(f"{path} cannot be replayed{why}", "name the journal of a run, a duel or a trace") from None


def _journal(run: str) -> Path:
    paths = open_session().paths
    runs = paths.runs
    if run == "last":
        journals = [path for path in files_in(runs) if path.stat().st_size]  # a full disk leaves empty ones
        if not journals:
            raise UsageError("nothing was run yet", "`pkb-arena run 1 baseline` is a first run")
        return journals[-1]
    places = [Path(run), *(folder / f"{run}.jsonl" for folder in (paths.traces, runs, paths.duels))]
    found = next((place for place in places if place.is_file()), None)
    if found is None and Path(run).is_dir():
        raise UsageError(f"{run} is a folder", "name the journal of a run, a duel or a trace")
    if found is None:
        raise UsageError(f"there is no run, duel or trace {run!r}, and no such file", _recent(paths))
    return found


def _recent(paths: Paths) -> str:
    """Lists the latest runs, duels and traces that can be replayed."""
    stems = [path.stem for folder in (paths.runs, paths.duels, paths.traces) for path in files_in(folder)]
    if not stems:
        return "nothing was run yet: `pkb-arena run 1 baseline` is a first run"
    return f"the last ones are {', '.join(sorted(stems)[-3:])}"


def _line(event: events.AnyEvent) -> str:
    match event:
        case events.PhaseEnded():
            return f"{event.phase} {event.seconds:.2f} s"
        case events.RankChecked():
            worst = max(event.outputs, key=lambda output: output.rms, default=None)
            return f"rank {event.rank} {'✓' if event.ok else '✗'}" + (f" rms {worst.rms:.2e}" if worst else "")
        case events.Checked():
            return f"checked after {event.seconds:.2f} s: {event.verdict}"
        case events.Timed():
            return f"round {event.round}/{event.rounds}  {speedup_text(headline_so_far(event))}"
        case events.Cancelled():
            return f"cancelled in {event.phase}"
        case events.Refused():
            return f"refused: {event.message}"
        case _:
            return ""
