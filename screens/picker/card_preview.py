"""A problem in a few lines: what it computes, what it moves, how you stand with it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from textual.content import Content

from arena.errors import ArenaError
from arena.foreign_text import printable
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from problems.specification import CLASSES
from screens import figures
from screens.picker.problem_table import ranks_words

if TYPE_CHECKING:
    from problems.specification import Problem
    from screens.services import Services


def opening(card: str) -> tuple[str, str]:
    """(first paragraph, formula or code that follows it) of a card."""
    body = re.sub(r"\A#[^\n]*\n+", "", card)
    blocks = [block for block in re.split(r"\n\s*\n", body) if block.strip()]
    words = " ".join(blocks[0].split()) if blocks else ""
    formula = ""
    if len(blocks) > 1 and blocks[1].startswith("    "):
        formula = "\n".join(line[4:] for line in blocks[1].splitlines())
    return re.sub(r"[*`]", "", words), formula


def card_preview(problem: Problem, services: Services) -> Content:
    """Short enough for the pane beside the table; the whole card is one key away."""
    words, formula = opening(printable(problem.card))
    tags = " · ".join([problem.category, *problem.also, problem.domain, *problem.collectives])
    parts: list[Content] = [
        Content.styled(problem.title, "bold"),
        Content.styled(tags, "$muted"),
        Content(""),
        *_standing_lines(problem, services),
        Content(""),
        Content(words),
    ]
    if formula:
        parts += [Content(""), Content.styled(formula, "$accent")]
    parts += [Content(""), *_cost_lines(problem, services.settings)]
    parts += [_pair("class", f"{problem.class_}: {CLASSES[problem.class_]}"), _pair("from", problem.origin)]
    return Content("\n").join(parts)


def _standing_lines(problem: Problem, services: Services) -> list[Content]:
    """The person's own result, and the best of all where somebody else has it."""
    standing, best = services.standings.get(problem.id), services.best.get(problem.id)
    you, colour = figures.standing_words(standing)
    runs = f"  {standing.runs} run{'s' if standing.runs != 1 else ''}" if standing else "  not tried yet"
    lines = [Content.assemble(("you        ", "$muted"), (you, f"${colour}"), (runs, "$muted"))]
    if best is not None and best.player != "you":
        words, colour = figures.best_words(best)
        by = f"  {printable(best.player)}, {best.world} ranks on {best.device}"
        lines.append(Content.assemble(("best       ", "$muted"), (words, f"${colour}"), (by, "$muted")))
    return lines


def _cost_lines(problem: Problem, settings: Settings) -> list[Content]:
    try:
        setting = choose_setting(problem, Choice(), settings)
        cost = problem.cost(setting.sizes, setting.world, setting.dtype)
    except (ArenaError, ValueError) as error:
        return [Content.styled(f"! {error}", "$warning")]
    sizes = " ".join(f"{name}={value}" for name, value in setting.sizes.items())
    return [
        _pair("runs as", f"{setting.preset} · {setting.dtype} · {setting.world} ranks on {setting.device}"),
        _pair("sizes", sizes),
        _pair(
            "each rank",
            f"{figures.amount(cost.flops, 'FLOP')}, touches {figures.amount(cost.local_bytes, 'B')}",
        ),
        _pair("sends", f"{figures.amount(cost.sent_bytes, 'B')} a call"),
        _pair("ranks", ranks_words(problem.worlds)),
        _pair("dtypes", ", ".join(problem.dtypes)),
    ]


def _pair(name: str, value: str) -> Content:
    return Content.assemble((f"{name:<11}", "$muted"), value)
