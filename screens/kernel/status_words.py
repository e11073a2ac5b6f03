"""Texts of the headline: the problem, the user's best result and the setting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arena.errors import ArenaError
from screens import figures

if TYPE_CHECKING:
    from arena.records.ranking import Standing
    from problems.specification import Problem
    from sandbox.protocol.events import Setting


def problem_words(problem: Problem) -> str:
    """ "13 · GEMM, then all-reduce"."""
    return f"{problem.id} · {problem.title}"


def best_words(problem: Problem, standing: Standing | None) -> str:
    """The user's best result, or the last one if none was correct; then the problem's category and collectives."""
    best = "not tried yet"
    if standing is not None:
        best = f"your {'best' if standing.solved else 'last'} {figures.standing_words(standing)[0]}"
    return f"{best} · {problem.category} · {', '.join(problem.collectives)}"


def setting_words(setting: Setting | ArenaError) -> str:
    """ "tiny · bfloat16 · W=2 · cpu · M=256 N=64", or why nothing can be run."""
    if isinstance(setting, ArenaError):
        return f"! {setting.message}"
    sizes = " ".join(f"{name}={value}" for name, value in setting.sizes.items())
    return f"{setting.preset} · {setting.dtype} · W={setting.world} · {setting.device} · {sizes}"
