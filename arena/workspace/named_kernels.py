"""Kernels with a word instead of a file: the baseline, its variants, the house kernel that pkb-arena ships."""

from arena.errors import UsageError
from problems.catalogue import Catalogue
from problems.specification import Problem
from sandbox.baseline_variants import COLLECTIVES, COPIED, graph_text, windows_text
from sandbox.machine.devices import kind_of

BASELINE = "baseline"
"""The word for the problem's baseline."""
HOUSE = "house"
"""The player's name, and the word for its kernel."""
GRAPH = "baseline-graph"
"""The baseline in a CUDA graph."""
WINDOWS = "baseline-windows"
"""A plain collective by NCCL's kernels on registered symmetric memory."""
COPY_ENGINE = "baseline-copy-engine"
"""The same by copy engines."""
VARIANTS = (GRAPH, WINDOWS, COPY_ENGINE)
NAMED = (BASELINE, *VARIANTS, HOUSE)


def named_kernel(word: str, problem: Problem, catalogue: Catalogue, device: str) -> tuple[str, str] | None:
    """(kernel_name, source) as a `RunRequest` takes them; None: the word is none of `NAMED`. device: where it is to run.

    Raises:
        UsageError: there is no house kernel for this problem, there is no such variant for it, or it needs GPU ranks.
    """
    if word == BASELINE:
        return BASELINE, ""
    if word == HOUSE:
        return "house.py", house_source(problem, catalogue)
    if word in VARIANTS:
        return f"{word}.py", variant_source(problem, word, device)
    return None


def house_source(problem: Problem, catalogue: Catalogue) -> str:
    """The source of a problem's house kernel.

    Raises:
        UsageError: there is none.
    """
    source = problem.house_source
    if source is None:
        known = ", ".join(str(other.id) for other in catalogue.problems if other.house_source is not None)
        raise UsageError(
            f"there is no house kernel for {problem.id} {problem.slug}", f"there are house kernels for {known}"
        )
    return source


def has_variant(problem: Problem, word: str) -> bool:
    """Whether a problem has this variant: a graph for all, windows for the plain collectives alone."""
    if word == GRAPH:
        return True
    plain = problem.category == "collective" and problem.collectives[0] in COLLECTIVES
    return plain and (word == WINDOWS or problem.collectives[0] in COPIED)


def variant_source(problem: Problem, word: str, device: str) -> str:
    """The text of the kernel that one of `VARIANTS` stands for. device: where it is to run.

    Raises:
        UsageError: it needs GPU ranks, or there is none for this problem.
    """
    if not kind_of(device).has_reference_forms:
        raise UsageError(f"{word} needs GPU ranks", "use --device cuda, or measure against `baseline`")
    if not has_variant(problem, word):
        raise UsageError(
            f"there is no {word} for {problem.id} {problem.slug}",
            f"{WINDOWS} is for 1, 2, 7 and 8, {COPY_ENGINE} for 2 and 8; {GRAPH} is for all problems",
        )
    if word == GRAPH:
        return graph_text(f"{problem.id} · {problem.title}", problem.baseline_source)
    return windows_text(problem.collectives[0], word == COPY_ENGINE)
