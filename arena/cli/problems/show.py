"""`pkb-arena show`: a problem's card, sizes, signature and baseline."""

from typing import Any

import click

from arena.cli.options import json_option, problem_argument
from arena.cli.output import print_json, print_line
from arena.cli.problems.problem_facts import problem_facts
from arena.cli.session import open_session
from arena.workspace.templates import signature
from problems.specification import CLASSES, Problem


@click.command()
@problem_argument
@json_option
def command(problem: str, as_json: bool) -> None:
    """Show a problem's card, its sizes, the signature of solution() and the baseline's source."""
    session = open_session()
    found = session.problem(problem)
    if as_json:
        print_json(_object(found))
        return
    print_line(f"{found.id} · {found.title}")
    print_line(f"{found.stem} · {found.category} · {', '.join(found.collectives)}")
    print_line(f"class {found.class_}: {CLASSES[found.class_]}")
    reason = f" ({found.worlds_reason})" if found.worlds_reason else ""
    print_line(f"worlds {', '.join(map(str, found.worlds))}{reason} · dtypes {', '.join(found.dtypes)}")
    for name, sizes in found.presets.items():
        print_line(f"{name:<10}  {'  '.join(f'{key}={value}' for key, value in sizes.items())}")
    print_line()
    print_line(f"def {signature(found)}")
    print_line()
    print_line(found.card.strip())
    print_line()
    print_line("baseline.py")
    print_line()
    print_line(found.baseline_source.rstrip())


def _object(problem: Problem) -> dict[str, Any]:
    return {
        **problem_facts(problem),
        "worlds_reason": problem.worlds_reason,
        "signature": signature(problem),
        "card": problem.card,
        "baseline": problem.baseline_source,
        "house": problem.house_source,
        "folder": str(problem.folder),
    }
