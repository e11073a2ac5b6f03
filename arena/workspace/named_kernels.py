"""Kernels with a name instead of a file: the baseline, its variants and a problem's house kernel."""

from arena.errors import UsageError
from problems.catalogue import Catalogue
from problems.specification import Problem
from sandbox.baseline_variants import COLLECTIVES, COPIED, graph_text, windows_text
from sandbox.kit.templates import fill, names
from sandbox.machine.backends import backend_names
from sandbox.machine.devices import kind_of

BASELINE = "baseline"
"""The name of the problem's baseline."""
HOUSE = "house"
"""The name of the house kernel, and of its player."""
GRAPH = "baseline-graph"
"""The baseline in a CUDA graph."""
WINDOWS = "baseline-windows"
"""A plain collective with NCCL's kernels on registered symmetric memory."""
COPY_ENGINE = "baseline-copy-engine"
"""As WINDOWS, with copy engines instead of NCCL's kernels."""
VARIANTS = (GRAPH, WINDOWS, COPY_ENGINE)
NAMED = (BASELINE, *VARIANTS, HOUSE)


def named_kernel(word: str, problem: Problem, catalogue: Catalogue, device: str) -> tuple[str, str] | None:
    """Returns (kernel_name, source) for a `RunRequest`; None if the word is not in `NAMED`.

    device: where it will run.

    Raises:
        UsageError: the problem has no house kernel or no such variant, or the variant needs GPU ranks.
    """
    if word == BASELINE:
        return BASELINE, ""
    if word == HOUSE:
        return "house.py", house_source(problem, catalogue)
    if word in VARIANTS:
        return f"{word}.py", variant_source(problem, word, device)
    return None


def house_source(problem: Problem, catalogue: Catalogue) -> str:
    """Returns the source of a problem's house kernel.

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
    """Returns whether a problem has this variant: all have a graph, only plain collectives have the others."""
    if word == GRAPH:
        return True
    plain = problem.category == "collective" and problem.collectives[0] in COLLECTIVES
    return plain and (word == WINDOWS or problem.collectives[0] in COPIED)


def variant_source(problem: Problem, word: str, device: str) -> str:
    """Returns the text of the kernel for one of `VARIANTS`. device: where it will run.

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


GPU_TEMPLATES = ("cuda", "triton", *backend_names())
"""Templates whose kernels run on GPU ranks only."""


def template_names() -> list[str]:
    """Returns the names of the templates: "baseline", "cpp", "symm", "torch"..."""
    return [BASELINE, *names()]


def signature(problem: Problem) -> str:
    """Returns the signature with the baseline's parameters and no annotations: "solution(x, alpha=1.0)"."""
    arguments = (name if default is None else f"{name}={default}" for name, default in problem.parameters)
    return f"solution({', '.join(arguments)})"


def starter(problem: Problem, template: str) -> str:
    """Returns the text of a starter kernel for a problem. template: one of `template_names()`."""
    if template == BASELINE:
        return problem.baseline_source
    return fill(template, f"{problem.id} · {problem.title}", signature(problem), problem.baseline_source)
