"""Kernels with a word instead of a file: the baseline, its variants, the house kernel."""

from arena.workspace.baseline_variants import WORDS, variant_source
from arena.workspace.house import HOUSE, house_source
from problems.catalogue import Catalogue
from problems.specification import Problem

BASELINE = "baseline"
"""The word for the problem's baseline."""
NAMED = (BASELINE, *WORDS, HOUSE)


def named_kernel(word: str, problem: Problem, catalogue: Catalogue, device: str) -> tuple[str, str] | None:
    """(kernel_name, source) as a `RunRequest` takes them; None: the word is none of `NAMED`. device: where it is to run.

    Raises:
        UsageError: there is no house kernel for this problem, there is no such variant for it, or it needs GPU ranks.
    """
    if word == BASELINE:
        return BASELINE, ""
    if word == HOUSE:
        return "house.py", house_source(problem, catalogue)
    if word in WORDS:
        return f"{word}.py", variant_source(problem, word, device)
    return None
