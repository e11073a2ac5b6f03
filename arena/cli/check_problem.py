"""`pkb-arena check-problem`: for people who add a problem of their own."""

from pathlib import Path

import click

from arena.cli.output import print_line
from arena.errors import UsageError
from arena.templates import signature
from problems.specification import ProblemError, load_problem


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
def command(folder: Path) -> None:
    """Check that FOLDER is a problem: problem.toml, card.md, inputs.py, baseline.py."""
    try:
        problem = load_problem(folder)
        text = signature(problem)
    except ProblemError as error:
        raise UsageError(str(error)) from None
    except SyntaxError as error:
        raise UsageError(
            f"{folder / 'baseline.py'}:{error.lineno}: {error.msg}", "correct that line"
        ) from None
    print_line(f"{problem.stem}: {problem.title}")
    print_line(text)
    for preset, sizes in problem.presets.items():
        world = problem.worlds[-1]
        cost = problem.cost(sizes, world, problem.dtypes[0])
        print_line(
            f"{preset:<10}  world {world}: {cost.flops:.3g} FLOP, {cost.sent_bytes:.3g} B sent per rank"
        )
    print_line(f"next: pkb-arena run {folder.name} baseline, with {folder.absolute().parent} in problem_dirs")
