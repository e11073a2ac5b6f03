"""`pkb-arena show`: prints a problem's card, sizes, signature and baseline."""

from typing import Any

import click

from arena.cli.options import json_option, open_session, problem_argument
from arena.cli.output import print_json, print_line
from arena.cli.problems.list_problems import problem_facts
from arena.errors import UsageError
from arena.workspace.agents_page import problem_page
from arena.workspace.named_kernels import house_source, signature
from problems.specification import Problem


@click.command()
@problem_argument
@click.option("--house", is_flag=True, help="Print only the source of the house kernel.")
@json_option
def command(problem: str, house: bool, as_json: bool) -> None:
    """Show a problem's card, its sizes, the signature of solution() and the baseline's source."""
    session = open_session()
    found = session.problem(problem)
    if house and as_json:
        raise UsageError("--house prints a kernel's text", "without it, --json has the text in its field `house`")
    if house:
        print_line(house_source(found, session.catalogue).rstrip("\n"))
        return
    if as_json:
        print_json(_object(found))
        return
    print_line(problem_page(found))


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
