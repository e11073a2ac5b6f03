"""`pkb-arena sweep`: every baseline against itself, in one warm session."""

import time
from typing import Any

import click

from arena.cli.diagnostics import say
from arena.cli.interrupts import run_interruptibly
from arena.cli.options import json_option, rounds_option, setting_options
from arena.cli.output import print_json, print_line
from arena.cli.session import Session, open_session
from arena.engine import Engine
from arena.errors import MachineError, UsageError
from arena.kernel_run import run_to_end
from arena.run_request import RunRequest
from arena.setting_choice import Choice, choose_setting
from arena.store import BASELINE
from problems.specification import Problem
from sandbox.events import Result
from sandbox.verdict import ExitCode, Verdict

HEADER = ["problem", "verdict", "call µs", "device µs", "A/A", "of bound", "s", "detail"]


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

    Each must end in PASS, and none may be called faster than itself.
    """
    session = open_session()
    chosen = [session.problem(name) for name in problems] or session.catalogue.problems
    rows: list[dict[str, Any]] = []
    try:
        run_interruptibly(_sweep(session, chosen, choice, 5 if rounds is None else rounds, rows))
    finally:
        if rows:  # an interrupted sweep has found out something, too; one that could not begin has not
            _print(rows, as_json)
    ctx.exit(ExitCode.PASS if all(row["verdict"] == Verdict.PASS for row in rows) else ExitCode.KERNEL_FAILED)


def _print(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    for line in _table([HEADER, *map(_cells, rows)]):
        print_line(line)


def _table(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


async def _sweep(
    session: Session, problems: list[Problem], choice: Choice, rounds: int, rows: list[dict[str, Any]]
) -> None:
    """Adds a row to `rows` for each problem, as soon as it is there."""
    async with Engine(session.paths) as engine:
        await engine.start()
        for problem in problems:
            started = time.monotonic()
            row: dict[str, Any] = {"id": problem.id, "problem": problem.slug}
            try:
                setting = choose_setting(problem, choice, session.settings)
                request = RunRequest(
                    problem=problem, setting=setting, kernel_name=BASELINE, source="", rounds=rounds
                )
                row |= {"world": setting.world, "dtype": setting.dtype}
                _, result = await run_to_end(engine, request)
                row |= _found(result)
            except UsageError as error:
                row |= {"verdict": "REFUSED", "detail": error.message}
            except MachineError as error:
                row |= {"verdict": Verdict.HARNESS_ERROR.value, "detail": error.message}
            row["seconds"] = round(time.monotonic() - started, 2)
            rows.append(row)
            if [late["verdict"] for late in rows[-3:]] == ["HARNESS_ERROR"] * 3:
                say(
                    "three harness errors in a row: stopping; see the last one with `pkb-arena run PROBLEM baseline`"
                )
                break
            say(f"{problem.stem}: {row['verdict']} {row['seconds']} s {row.get('detail') or ''}")


def _found(result: Result) -> dict[str, Any]:
    speedup, base = result.speedup, result.baseline_us
    return {
        "verdict": result.verdict.value,
        "detail": result.detail,
        "outcome": result.outcome,
        "call_us": base.call if base else None,
        "device_us": base.device if base else None,
        "call": [speedup.call.low, speedup.call.median, speedup.call.high]
        if speedup and speedup.call
        else None,
        "device": [speedup.device.low, speedup.device.median, speedup.device.high]
        if speedup and speedup.device
        else None,
        "percent": result.roofline.percent if result.roofline else None,
        "limiter": result.roofline.limiter if result.roofline else None,
        "text": result.failure.text[-2000:] if result.failure else "",
    }


def _cells(row: dict[str, Any]) -> list[str]:
    def number(value: float | None) -> str:
        return "" if value is None else f"{value:.1f}"

    ratio = row.get("device") or row.get("call")
    bound = f"{row['percent']:.0f} % {row['limiter']}" if row.get("percent") else ""
    return [
        f"{row['id']:02d} {row['problem']}",
        row["verdict"],
        number(row.get("call_us")),
        number(row.get("device_us")),
        f"{ratio[1]:.3f} {row.get('outcome', '')}" if ratio else "",
        bound,
        f"{row['seconds']:.1f}",
        (row.get("detail") or "")[:100],
    ]
