"""`python -m benchmarks NAME`: the measurements of pkb-arena, in a checkout."""

import sys
from functools import partial
from typing import Any

import click

from arena.cli import exit_code_of
from arena.cli.display import run_interruptibly
from arena.cli.options import json_option, number_option, open_session
from arena.cli.output import print_json, print_line, say
from benchmarks.atlas import command as atlas
from benchmarks.attacks.main import command as attacks
from benchmarks.catalogue import LONG, MEASUREMENTS, TABLES, conclude, measure, tabulate
from benchmarks.kittens_checkout import command as kittens_checkout
from benchmarks.monkey import command as monkey
from benchmarks.sweep_table import command as sweep_table
from benchmarks.tables.scope import Scope
from problems.specification import PRESETS
from sandbox.machine.devices import KINDS
from sandbox.protocol.verdict import ExitCode

PROGRAM = "python -m benchmarks"


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def main() -> None:
    """Measure pkb-arena on this machine.

    Exit codes: 0 measured, 1 a fault of pkb-arena was found, 2 usage, 3 this machine cannot.
    """


@main.command("all")
@json_option
def measure_all(as_json: bool) -> None:
    """Every measurement that takes minutes at most."""
    _measure([name for name in MEASUREMENTS if name not in LONG], None, as_json)


def _figures_command(name: str) -> click.Command:
    @click.command(name, help=MEASUREMENTS[name].sentence)
    @number_option("--repetitions", within=(1, 1000), help="How often it is measured.")
    @json_option
    def command(repetitions: int | None, as_json: bool) -> None:
        _measure([name], repetitions, as_json)

    return command


def _table_command(name: str) -> click.Command:
    table = TABLES[name]

    def command(repetitions: int | None, as_json: bool, problems: tuple[str, ...] = (), **narrowed: Any) -> None:
        session = open_session()
        scope = Scope(tuple(map(session.problem, problems)), repetitions=repetitions, **narrowed)
        _tabulate(name, scope, as_json)

    options = [
        number_option(
            "--repetitions",
            within=(1, 1000),
            help="Runs of each kind (backends, collectives, graphs: rounds a run; kit-soak: thousands of calls a block).",
        ),
        json_option,
    ]
    options += [_NARROWING[option] for option in _NARROWING if option in table.options]
    decorated: Any = command
    for option in reversed(options):
        decorated = option(decorated)
    return click.command(name, help=table.sentence)(decorated)


_NARROWING = {
    "problems": click.argument("problems", nargs=-1, metavar="[PROBLEM]..."),
    "blocks": click.argument("blocks", nargs=-1, metavar="[BLOCK]..."),
    "world": number_option("--world", within=(1, 64), help="Ranks. [default: all GPUs; 2 on CPU]"),
    "preset": click.option("--preset", type=click.Choice(PRESETS), help="Sizes."),
    "device": click.option("--device", type=click.Choice(list(KINDS)), help="Where the ranks run."),
    "loaded": click.option("--loaded", is_flag=True, help="Beside a busy process on every core."),
}


def _measure(names: list[str], repetitions: int | None, as_json: bool) -> None:
    measured = []
    for name in names:
        say(f"measuring {name} ...")
        figures = run_interruptibly(measure(name, repetitions))
        measured += figures
        if not as_json:
            for figure in figures:
                print_line(f"{figure.name:<34} {figure.text()}")
    if as_json:
        print_json(measured)
    _exit(all(figure.kept or not figure.fault for figure in measured))


def _tabulate(name: str, scope: Scope, as_json: bool) -> None:
    """Makes a table. After an interrupt or an error, it still prints the rows made so far."""
    # With --json stdout holds one JSON array at the end; the rows go to stderr as they come.
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
    _exit(conclusion.sound)


def _exit(sound: bool) -> None:
    click.get_current_context().exit(ExitCode.PASS if sound else ExitCode.KERNEL_FAILED)


for _name in MEASUREMENTS:
    main.add_command(_figures_command(_name))
for _name in TABLES:
    main.add_command(_table_command(_name))
main.add_command(attacks, "attacks")
main.add_command(monkey, "monkey")
main.add_command(sweep_table, "results")
main.add_command(atlas, "atlas")
main.add_command(kittens_checkout, "kittens")


if __name__ == "__main__":
    sys.exit(exit_code_of(partial(main.main, prog_name=PROGRAM, standalone_mode=False)))
