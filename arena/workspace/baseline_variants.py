"""Baseline variants (CUDA graph, NCCL windows, copy engines), each with the word that runs it like a kernel."""

from arena.errors import UsageError
from problems.specification import Problem
from sandbox.baseline_variants import COLLECTIVES, COPIED, graph_text, windows_text
from sandbox.machine.devices import kind_of

GRAPH = "baseline-graph"
"""The baseline in a CUDA graph."""
WINDOWS = "baseline-windows"
"""A plain collective by NCCL's kernels on registered symmetric memory."""
COPY_ENGINE = "baseline-copy-engine"
"""The same by copy engines."""
WORDS = (GRAPH, WINDOWS, COPY_ENGINE)


def has(problem: Problem, word: str) -> bool:
    """Whether a problem has this variant: a graph for all, windows for the plain collectives alone."""
    if word == GRAPH:
        return True
    plain = problem.category == "collective" and problem.collectives[0] in COLLECTIVES
    return plain and (word == WINDOWS or problem.collectives[0] in COPIED)


def variant_source(problem: Problem, word: str, device: str) -> str:
    """The text of the kernel that one of `WORDS` stands for. device: where it is to run.

    Raises:
        UsageError: it needs GPU ranks, or there is none for this problem.
    """
    if not kind_of(device).has_reference_forms:
        raise UsageError(f"{word} needs GPU ranks", "use --device cuda, or measure against `baseline`")
    if not has(problem, word):
        raise UsageError(
            f"there is no {word} for {problem.id} {problem.slug}",
            f"{WINDOWS} is for 1, 2, 7 and 8, {COPY_ENGINE} for 2 and 8; {GRAPH} is for all problems",
        )
    if word == GRAPH:
        return graph_text(f"{problem.id} · {problem.title}", problem.baseline_source)
    return windows_text(problem.collectives[0], word == COPY_ENGINE)
