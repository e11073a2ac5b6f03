"""`pkb-arena list`, `show` and `new`: problems, their pages, and starter kernels."""

from typing import TYPE_CHECKING, Any

import click

from arena.cli.options import json_option, kernel_path, open_session, problem_argument
from arena.cli.output import complain, print_found, print_json, print_line, say
from arena.errors import ArenaError, UsageError
from arena.machine.facts import visible_gpus
from arena.paths import NAMED, make_folder, write_named_file
from arena.workspace import agents_page
from arena.workspace.agents_page import problem_page
from arena.workspace.kernels import Workspace
from arena.workspace.named_kernels import BASELINE, GPU_TEMPLATES, house_source, signature, starter, template_names
from problems.specification import CATEGORIES, Problem
from sandbox.machine.backends import named

if TYPE_CHECKING:
    from arena.records.ranking import Standing
    from arena.records.run_record import RunRecord


@click.command()
@click.option("--category", metavar="C", help=f"Only one category: {', '.join(CATEGORIES)}.")
@json_option
def list_problems(category: str | None, as_json: bool) -> None:
    """List the problems by category, with your best result for each."""
    session = open_session(warn=True)
    categories = session.catalogue.categories
    if category is not None and category not in categories:
        raise UsageError(f"there is no category {category!r}", f"choose from {', '.join(categories)}")
    try:
        standings = session.standings()
    except ArenaError as error:
        complain(f"results are not shown: {error.message}", error.advice)
        standings = {}
    shown = {name: found for name, found in categories.items() if category in (None, name)}
    if as_json:
        print_json([_row(problem, standings.get(problem.id)) for found in shown.values() for problem in found])
        return
    width = max((len(problem.slug) for found in shown.values() for problem in found), default=0)
    for heading, found in shown.items():
        solved = sum(1 for problem in found if problem.id in standings and standings[problem.id].solved)
        print_line(f"{heading}  {solved} of {len(found)} solved")
        for problem in found:
            standing = standings.get(problem.id)
            name = f"{problem.id:>3}  {problem.slug:<{width}} {problem.class_}"
            print_line(f"  {name}  {standing.words if standing else '–':<14}  {problem.title}")


def _row(problem: Problem, standing: "Standing | None") -> dict[str, Any]:
    return {
        **problem_facts(problem),
        "house": (problem.folder / "house.py").exists(),
        "runs": standing.runs if standing else 0,
        "solved": standing.solved if standing else False,
        "best": _best(standing.best) if standing and standing.best else None,
    }


def _best(entry: "RunRecord") -> dict[str, Any]:
    return {
        "speedup": entry.interval,
        **{name: getattr(entry, name) for name in ("run_id", "outcome", "clock", "device", "world", "dtype", "preset")},
    }


def problem_facts(problem: Problem) -> dict[str, Any]:
    """Returns the fields of a problem's problem.toml that are shown to users."""
    names = "id slug stem title category also domain origin collectives worlds dtypes presets"
    return {name: getattr(problem, name) for name in names.split()} | {"class": problem.class_}


@click.command()
@problem_argument
@click.option("--house", is_flag=True, help="Print only the source of the house kernel.")
@json_option
def show(problem: str, house: bool, as_json: bool) -> None:
    """Show a problem's card, its sizes, the signature of solution() and the baseline's source."""
    session = open_session()
    found = session.problem(problem)
    if house and as_json:
        raise UsageError("--house prints a kernel's text", "without it, --json has the text in its field `house`")
    if house:
        print_line(house_source(found, session.catalogue).rstrip("\n"))
        return
    print_found(as_json, _object(found), problem_page(found))


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


@click.command()
@problem_argument
@click.option(
    "--template", type=click.Choice(template_names()), default=BASELINE, show_default=True, help="What to start from."
)
@click.option(
    "-o", "--output", type=click.Path(), help="File to write, FOLDER/ or - for stdout. [default: the workspace's]"
)
@click.option("--agents", is_flag=True, help="Write AGENTS.md beside it, for a coding agent.")
@click.option("--force", is_flag=True, help="Overwrite a file that exists.")
def new(problem: str, template: str, output: str | None, agents: bool, force: bool) -> None:
    """Write a starter kernel for PROBLEM and print its path."""
    session = open_session()
    found = session.problem(problem)
    text = starter(found, template)
    if output == "-":
        if agents:
            raise UsageError("AGENTS.md lies beside a file, and stdout is none", "name a file with -o")
        print_line(text.rstrip("\n"))
        return
    workspace = Workspace(session.paths.workspace)
    path = workspace.kernel_path(found) if output is None else kernel_path(output)
    page = path.with_name(agents_page.FILE) if agents else None
    for file in (path, page):
        if file is not None and file.is_dir():
            raise UsageError(f"{file} is a folder", f"name a file, such as -o {file}/kernel.py")
        if file is not None and file.exists() and not force:
            raise UsageError(f"{file} exists", "choose another file with -o, or --force to overwrite it")
    if template in GPU_TEMPLATES and not visible_gpus():
        say(f"{template} kernels need GPUs, and this machine has none; --template cpp is for CPU ranks")
    if (backend := named(template)) and (found_here := backend.availability()).advice:
        say(f"{template} kernels do not run here yet: {found_here.found}; {found_here.advice}")
    if output is None:
        workspace.save(path, text)
    else:
        make_folder(path.absolute().parent, NAMED)
        write_named_file(path, text)
    print_line(str(path))
    if page is not None:
        write_named_file(page, agents_page.agents_page(found, path))
        say(f"for an agent: {page}")
    say(f"judge it with: pkb-arena run {found.id} {output or path}")
