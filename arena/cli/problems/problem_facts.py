"""The fields of a problem that `list --json` and `show --json` share."""

from typing import Any

from problems.specification import Problem


def problem_facts(problem: Problem) -> dict[str, Any]:
    """All that is in its problem.toml for a reader."""
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
