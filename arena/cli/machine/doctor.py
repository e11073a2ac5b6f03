"""`pkb-arena doctor`: the state of this machine, and the measurements of pkb-arena on it."""

from typing import Any

import click

from arena.bench import LONG, MEASUREMENTS, TABLES, conclude, measure, tabulate
from arena.bench.tables.scope import Scope
from arena.cli.diagnostics import say
from arena.cli.display import Display, display_of
from arena.cli.interrupts import run_interruptibly
from arena.cli.numbers import Whole
from arena.cli.options import json_option
from arena.cli.output import print_json, print_line
from arena.cli.session import open_session
from arena.errors import ArenaError, UsageError
from arena.machine.clock_findings import ClockSight, clocks_seen
from arena.machine.doctor import can_run, examine
from arena.machine.finding import MachineFinding
from arena.machine.fix_plan import as_script
from arena.machine.fix_plan import fix_plan as plan_fixes
from arena.paths import find_paths
from problems.specification import PRESETS
from sandbox.machine.devices import KINDS
from sandbox.protocol.verdict import ExitCode

_SIGNS = {"ok": click.style("✓", fg="green"), "limited": "–", "missing": click.style("✗", fg="red")}


class _BenchOption(click.Option):
    """Its help names what this command line can measure, the display's measurements among them."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        names = ", ".join((*MEASUREMENTS, *display_of(ctx).measurements))
        self.help = (
            f"Measure instead: {names}, or all but {', '.join(sorted(LONG))}; "
            f"or one of the tables {', '.join(TABLES)}."
        )
        return super().get_help_record(ctx)


@click.command()
@click.argument("problems", nargs=-1, metavar="[PROBLEM]...")
@click.option(
    "--bench",
    cls=_BenchOption,
    is_flag=False,
    flag_value="all",
    metavar="[NAME]",
)
@click.option(
    "--repetitions",
    type=Whole(1, 1000),
    metavar="N",
    help="How often, where a measurement is repeated; in a table, runs of each kind (collectives, graphs: rounds a run; "
    "kit-soak: thousands of calls a block).",
)
@click.option(
    "--world", type=Whole(1, 64), metavar="N", help="Ranks of a table. [default: all GPUs; 2 on CPU]"
)
@click.option("--preset", type=click.Choice(PRESETS), help="Sizes of a table.")
@click.option("--device", type=click.Choice(list(KINDS)), help="Where the ranks of a table run.")
@click.option("--loaded", is_flag=True, help="Make a table's runs beside a busy process on every core.")
@click.option(
    "--fix-plan", is_flag=True, help="Print the commands for what is missing, as a shell script; run none."
)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    problems: tuple[str, ...],
    bench: str | None,
    repetitions: int | None,
    world: int | None,
    preset: str | None,
    device: str | None,
    loaded: bool,
    fix_plan: bool,
    as_json: bool,
) -> None:
    """Say what this machine can do, and what to do about the rest.

    With --bench it measures; PROBLEMs and the options below --repetitions narrow a table down. Exit code 3 when something is
    missing that every run needs; 1 when a measurement finds a fault, such as a leak.
    """
    options = {"problems": problems, "world": world, "preset": preset, "device": device, "loaded": loaded}
    _check_options(bench, [name for name, value in options.items() if value])
    if fix_plan and bench is not None:
        raise UsageError("--fix-plan is about findings, and --bench measures", "ask for one of them")
    if bench in TABLES:
        session = open_session()
        scope = Scope(tuple(map(session.problem, problems)), world, preset, device, repetitions, loaded)
        ctx.exit(ExitCode.PASS if _tabulate(bench, scope, as_json) else ExitCode.KERNEL_FAILED)
    if bench is not None:
        sound = _bench(bench, display_of(ctx), repetitions, as_json)
        ctx.exit(ExitCode.PASS if sound else ExitCode.KERNEL_FAILED)
    findings = examine()
    if fix_plan:
        _print_plan(findings, as_json)
    elif as_json:
        print_json({"can_run": can_run(findings), "findings": findings, "clocks": _clocks()})
    else:
        for finding in findings:
            print_line(f"{_SIGNS[finding.state]} {finding.name:<16} {finding.found}")
            if finding.advice:
                print_line(f"  {'':<16} → {finding.advice}")
    ctx.exit(ExitCode.PASS if can_run(findings) else ExitCode.ENVIRONMENT)


def _print_plan(findings: list[MachineFinding], as_json: bool) -> None:
    plan = plan_fixes(findings)
    if as_json:
        print_json({"can_run": can_run(findings), "fixes": plan})
        return
    for line in as_script(plan):
        print_line(line)


def _check_options(bench: str | None, given: list[str]) -> None:
    """Refuses what would be ignored. given: fields of `Scope`."""
    for name in given:
        takes = [table for table, each in TABLES.items() if name in each.options]
        if bench not in takes:
            what = "PROBLEM" if name == "problems" else f"--{name}"
            raise UsageError(f"{what} is for a table", f"add --bench {' or --bench '.join(takes)}")


def _tabulate(name: str, scope: Scope, as_json: bool) -> bool:
    """Makes a table; also what there is of one that was interrupted or cannot go on is printed. Returns whether it is sound."""
    # With --json stdout holds nothing but JSON at the end; the rows are told on stderr as they come.
    tell = say if as_json else print_line
    rows: list[Any] = []
    try:
        run_interruptibly(tabulate(name, scope, tell, rows))
    finally:
        conclusion = conclude(name, rows)
        for line in conclusion.lines:
            tell(line)
        if as_json and rows:
            print_json(rows)
    return conclusion.sound


def _clocks() -> list[ClockSight]:
    """What the clocks of this machine would have seen; empty where that is not known."""
    try:
        return clocks_seen(find_paths())
    except ArenaError:  # it is one of the findings
        return []


def _bench(name: str, display: Display, repetitions: int | None, as_json: bool) -> bool:
    known = [*MEASUREMENTS, *display.measurements]
    if name != "all" and name not in known:
        raise UsageError(
            f"there is no measurement {name!r}", f"choose from {', '.join((*known, *TABLES))}, all"
        )
    names = [each for each in known if each not in LONG] if name == "all" else [name]
    paths = find_paths()
    measured = []
    for each in names:
        say(f"measuring {each} ...")
        on_screen = display.measurements.get(each)
        work = on_screen(paths, repetitions) if on_screen else measure(each, paths, repetitions)
        figures = run_interruptibly(work)
        measured += figures
        if not as_json:
            for figure in figures:
                print_line(f"{figure.name:<34} {figure.text()}")
    if as_json:
        print_json(measured)
    return all(figure.kept or not figure.fault for figure in measured)
