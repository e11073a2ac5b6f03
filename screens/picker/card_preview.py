"""A problem in a few lines: what it computes, what it sends, your results."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from textual.content import Content

from arena.errors import ArenaError
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from arena.words.untrusted_text import printable
from problems.specification import CLASSES
from screens import figures
from screens.picker.problem_table import ranks_words
from screens.widgets.text_lines import hanging

if TYPE_CHECKING:
    from problems.specification import Problem
    from screens.services import Services

_NAMES = 11
"""Columns of the names."""


def opening(card: str) -> tuple[str, str]:
    """(first paragraph, formula or code that follows it) of a card."""
    body = re.sub(r"\A#[^\n]*\n+", "", card)
    blocks = [block for block in re.split(r"\n\s*\n", body) if block.strip()]
    words = " ".join(blocks[0].split()) if blocks else ""
    formula = ""
    if len(blocks) > 1 and blocks[1].startswith("    "):
        formula = "\n".join(line[4:] for line in blocks[1].splitlines())
    return re.sub(r"[*`]", "", words), formula


def card_preview(problem: Problem, services: Services, width: int) -> Content:
    """Returns a summary for the pane beside the table, `width` cells wide. Another key shows the whole card."""
    words, formula = opening(printable(problem.card))
    tags = " · ".join(dict.fromkeys([problem.category, *problem.also, problem.domain, *problem.collectives]))
    parts: list[Content] = [
        Content.styled(problem.title, "bold"),
        Content.styled(tags, "$muted"),
        Content(""),
        *_standing_lines(problem, services, width),
        Content(""),
        Content(words),
    ]
    if formula:
        parts += [Content(""), Content.styled(formula, "$accent")]
    pairs = [
        *_cost_pairs(problem, services.settings),
        ("class", f"{problem.class_}: {CLASSES[problem.class_]}"),
        ("from", problem.origin),
    ]
    parts.append(Content(""))
    for name, value in pairs:
        parts += _beside(name, Content.styled(value, "$foreground" if name else "$warning"), width)
    return Content("\n").join(parts)


def _standing_lines(problem: Problem, services: Services, width: int) -> list[Content]:
    """Returns the user's own result, and the best of all if another player has it."""
    standing, overall = services.standings.get(problem.id), services.best.get(problem.id)
    you, colour = figures.standing_words(standing)
    runs = f"  {standing.runs} run{'s' if standing.runs != 1 else ''}" if standing else "  not tried yet"
    lines = _beside("you", Content.assemble((you, f"${colour}"), (runs, "$muted")), width)
    if overall is not None and (best := overall.best) is not None and best.player != "you":
        words, colour = figures.best_words(best)
        of = f"  median of {overall.pooled} runs" * (overall.pooled > 1)  # of this code, by any player
        by = f"{of}  {printable(best.player)}, {best.world} ranks on {best.device}"
        lines += _beside("best", Content.assemble((words, f"${colour}"), (by, "$muted")), width)
    return lines


def _cost_pairs(problem: Problem, settings: Settings) -> list[tuple[str, str]]:
    """Returns names and values of the setting and its cost; after an error, only the reason, without a name."""
    try:
        setting = choose_setting(problem, Choice(), settings)
        cost = problem.cost(setting.sizes, setting.world, setting.dtype)
    except (ArenaError, ValueError) as error:
        return [("", f"! {error}")]
    sizes = " ".join(f"{name}={value}" for name, value in setting.sizes.items())
    return [
        ("runs as", f"{setting.preset} · {setting.dtype} · {setting.world} ranks on {setting.device}"),
        ("sizes", sizes),
        ("each rank", f"{figures.amount(cost.flops, 'FLOP')}, touches {figures.amount(cost.local_bytes, 'B')}"),
        ("sends", f"{figures.amount(cost.sent_bytes, 'B')} a call"),
        ("ranks", ranks_words(problem.worlds)),
        ("dtypes", ", ".join(problem.dtypes)),
    ]


def _beside(name: str, value: Content, width: int) -> list[Content]:
    return hanging(Content.styled(name, "$muted"), value, width, _NAMES)
