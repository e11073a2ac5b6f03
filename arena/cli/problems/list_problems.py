"""`pkb-arena list`: lists the problems with the user's best results."""

from typing import TYPE_CHECKING, Any

import click

from arena.cli.diagnostics import complain
from arena.cli.options import json_option, open_session
from arena.cli.output import print_json, print_line
from arena.errors import ArenaError, UsageError
from arena.words.headline import SIGNS
from problems.specification import CATEGORIES, Problem

if TYPE_CHECKING:
    from arena.records.ranking import Standing
    from arena.records.run_record import RunRecord


@click.command()
@click.option("--category", metavar="C", help=f"Only one category: {', '.join(CATEGORIES)}.")
@json_option
def command(category: str | None, as_json: bool) -> None:
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
            print_line(f"  {name}  {_words(standing):<14}  {problem.title}")


def _words(standing: "Standing | None") -> str:
    if standing is None:
        return "–"
    if standing.best is not None:
        on_device = " device" if standing.best.clock == "device" else ""
        return f"{SIGNS.get(standing.best.outcome, '·')} {standing.best.median:.2f}×{on_device}"
    if standing.solved:
        return "✓ right"
    return "✗ voided" if standing.last.voided else "✗ " + standing.last.verdict.lower().split("_")[0]


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
    return {
        "id": problem.id,
        "slug": problem.slug,
        "stem": problem.stem,
        "title": problem.title,
        "category": problem.category,
        "also": problem.also,
        "class": problem.class_,
        "domain": problem.domain,
        "origin": problem.origin,
        "collectives": problem.collectives,
        "worlds": problem.worlds,
        "dtypes": problem.dtypes,
        "presets": problem.presets,
    }
