"""`pkb-arena sweep`: runs every baseline against itself in one engine and prints a table."""

from typing import Any

import click

from arena.cli.diagnostics import complain, say
from arena.cli.interrupts import run_interruptibly
from arena.cli.options import json_option, rounds_option, setting_options
from arena.cli.output import print_json, print_line
from arena.cli.session import Session, open_session
from arena.errors import MachineError
from arena.runs.engine import Engine
from arena.runs.headline import WHERE, by_clock
from arena.runs.rows import PlannedRun, RunRow, harness_lost, judged_row, unfinished_row
from arena.runs.store import BASELINE
from arena.runs.table import BASELINE_TABLE
from arena.setting_choice import Choice
from problems.specification import Problem
from sandbox.protocol.events import Interval
from sandbox.protocol.verdict import ExitCode, Verdict

ROUNDS = 5


@click.command()
@click.argument("problems", nargs=-1, metavar="[PROBLEM]...")
@setting_options
@rounds_option
@json_option
@click.pass_context
def command(
    ctx: click.Context, problems: tuple[str, ...], choice: Choice, rounds: int | None, as_json: bool
) -> None:
    """Run the baselines of all problems (or of those named) against themselves and print a table.

    Exit code 1 when one does not pass, or is called faster or slower than itself by the clock of the
    headline: calls, or the device where calls are too noisy to tell.
    """
    session = open_session()
    chosen = [session.problem(name) for name in problems] or session.catalogue.problems
    rows: list[RunRow] = []
    try:
        run_interruptibly(_sweep(session, chosen, choice, ROUNDS if rounds is None else rounds, rows))
    finally:
        if rows:  # an interrupted sweep has found out something, too; one that could not begin has not
            _print(rows, as_json)
    ctx.exit(ExitCode.PASS if _sound(rows) else ExitCode.KERNEL_FAILED)


def _sound(rows: list[RunRow]) -> bool:
    """Every baseline passed, and none differs from itself. Names those that do on stderr."""
    different = [row for row in rows if row.differs_from_itself]
    for row in different:
        ratio = by_clock(row.speedup, row.clock)
        figures = f": {ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]" if ratio else ""
        where = f" {WHERE[row.clock]}" if row.clock else ""
        complain(
            f"the baseline of {row.id} {row.problem} is called {row.outcome} than itself{where}{figures}",
            "run it again on a quiet machine; if it repeats, speedups measured here are not to be trusted",
        )
    return not different and all(row.verdict == Verdict.PASS for row in rows)


def _print(rows: list[RunRow], as_json: bool) -> None:
    if as_json:
        print_json(list(map(_object, rows)))
        return
    for line in BASELINE_TABLE.lines(rows):
        print_line(line)


async def _sweep(
    session: Session, problems: list[Problem], choice: Choice, rounds: int, rows: list[RunRow]
) -> None:
    """Adds a row to `rows` for each problem, as soon as it is there."""
    async with Engine(session.paths) as engine:
        await engine.start()
        for problem in problems:
            planned = PlannedRun(problem, BASELINE, choice)
            try:
                row = await judged_row(engine, planned, session.settings, session.catalogue, rounds)
            except MachineError as error:
                row = unfinished_row(planned, Verdict.HARNESS_ERROR, error.message)
            rows.append(row)
            if harness_lost(rows):
                say(
                    "three harness errors in a row: stopping; see the last one with `pkb-arena run PROBLEM baseline`"
                )
                break
            say(f"{problem.stem}: {row.verdict} {row.seconds} s {row.detail}")


def _object(row: RunRow) -> dict[str, Any]:
    """A row of `sweep --json`. Fields are added, never renamed."""
    base, speedup, roofline = row.baseline_us, row.speedup, row.roofline
    return {
        "id": row.id,
        "problem": row.problem,
        "world": row.world or None,
        "dtype": row.dtype or None,
        "verdict": row.verdict,
        "detail": row.detail,
        "outcome": row.outcome,
        "clock": row.clock,
        "told": row.told,
        "call_us": base.call if base else None,
        "device_us": base.device if base else None,
        "call": _bounds(speedup.call) if speedup else None,
        "device": _bounds(speedup.device) if speedup else None,
        "percent": roofline.percent if roofline else None,
        "limiter": roofline.limiter if roofline else None,
        "text": row.text,
        "seconds": row.seconds,
    }


def _bounds(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.median, interval.high]
