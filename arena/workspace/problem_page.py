"""Formats a problem as a page of text: card, sizes, signature of solution() and the baseline's source."""

from arena.workspace.templates import signature
from problems.specification import CLASSES, Problem


def problem_page(problem: Problem) -> str:
    """Returns the page of a problem: all that a player needs to start."""
    reason = f" ({problem.worlds_reason})" if problem.worlds_reason else ""
    lines = [
        f"{problem.id} · {problem.title}",
        f"{problem.stem} · {problem.category} · {', '.join(problem.collectives)}",
        f"class {problem.class_}: {CLASSES[problem.class_]}",
        f"worlds {', '.join(map(str, problem.worlds))}{reason} · dtypes {', '.join(problem.dtypes)}",
        *(
            f"{name:<10}  {'  '.join(f'{key}={value}' for key, value in sizes.items())}"
            for name, sizes in problem.presets.items()
        ),
        "",
        f"def {signature(problem)}",
        "",
        problem.card.strip(),
        "",
        "baseline.py",
        "",
        problem.baseline_source.rstrip(),
    ]
    return "\n".join(lines)
