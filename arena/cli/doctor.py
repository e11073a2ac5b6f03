"""`pkb-arena doctor`: what this machine can do, and how fast pkb-arena is on it."""

import click

from arena.bench import LONG, MEASUREMENTS, TABLES, measure, tabulate
from arena.bench.row import Scope
from arena.cli.diagnostics import say
from arena.cli.interrupts import run_interruptibly
from arena.cli.options import json_option
from arena.cli.output import print_json, print_line
from arena.cli.session import open_session
from arena.doctor import can_run, examine
from arena.errors import UsageError
from arena.paths import find_paths
from sandbox.verdict import ExitCode

_SIGNS = {"ok": click.style("✓", fg="green"), "limited": "–", "missing": click.style("✗", fg="red")}


@click.command()
@click.argument("problems", nargs=-1, metavar="[PROBLEM]...")
@click.option(
    "--bench",
    is_flag=False,
    flag_value="all",
    metavar="[NAME]",
    help=f"Measure instead: {', '.join(MEASUREMENTS)}, or all but {', '.join(sorted(LONG))}; "
    f"on GPUs also the tables {', '.join(TABLES)}.",
)
@click.option(
    "--repetitions",
    type=click.IntRange(1, 1000),
    metavar="N",
    help="How often, where a measurement is repeated; in a table, rounds a run.",
)
@click.option(
    "--world", type=click.IntRange(1, 64), metavar="N", help="Ranks of a table. [default: all GPUs]"
)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    problems: tuple[str, ...],
    bench: str | None,
    repetitions: int | None,
    world: int | None,
    as_json: bool,
) -> None:
    """Say what this machine can do, and what to do about the rest.

    With --bench it measures; PROBLEMs and --world narrow a table down. Exit code 3 when something is missing that every run
    needs; 1 when a measurement finds a fault, such as a leak.
    """
    if (problems or world) and bench not in TABLES:
        raise UsageError(
            f"{'PROBLEM' if problems else '--world'} is for a table",
            f"add --bench {' or --bench '.join(TABLES)}",
        )
    if bench in TABLES:
        session = open_session()
        scope = Scope(tuple(map(session.problem, problems)), world, repetitions)
        # With --json stdout holds nothing but JSON at the end; the rows are told on stderr as they come.
        rows = run_interruptibly(tabulate(bench, scope, say if as_json else print_line))
        if as_json:
            print_json(rows)
        ctx.exit(ExitCode.KERNEL_FAILED if any(row.fault for row in rows) else ExitCode.PASS)
    if bench is not None:
        sound = _bench(bench, repetitions, as_json)
        ctx.exit(ExitCode.PASS if sound else ExitCode.KERNEL_FAILED)
    findings = examine()
    if as_json:
        print_json({"can_run": can_run(findings), "findings": findings})
    else:
        for finding in findings:
            print_line(f"{_SIGNS[finding.state]} {finding.name:<16} {finding.found}")
            if finding.advice:
                print_line(f"  {'':<16} → {finding.advice}")
    ctx.exit(ExitCode.PASS if can_run(findings) else ExitCode.ENVIRONMENT)


def _bench(name: str, repetitions: int | None, as_json: bool) -> bool:
    if name != "all" and name not in MEASUREMENTS:
        known = ", ".join((*MEASUREMENTS, *TABLES))
        raise UsageError(f"there is no measurement {name!r}", f"there are {known} and all")
    names = [each for each in MEASUREMENTS if each not in LONG] if name == "all" else [name]
    paths = find_paths()
    measured = []
    for each in names:
        say(f"measuring {each} ...")
        figures = run_interruptibly(measure(each, paths, repetitions))
        measured += figures
        if not as_json:
            for figure in figures:
                print_line(f"{figure.name:<34} {figure.text()}")
    if as_json:
        print_json(measured)
    return all(figure.kept or not figure.fault for figure in measured)
