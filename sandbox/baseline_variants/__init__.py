"""Baseline variants: kernels that the judge times like any other, to compare with the baseline.

graph.py      the baseline in a CUDA graph, without launch overhead
windows.py    a collective of NCCL on registered symmetric memory, by kernels or copy engines
"""

from pathlib import Path

from sandbox.kit.templates import with_baseline

_FOLDER = Path(__file__).parent
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
"""Collectives of windows.py."""
COPIED = ("all_gather", "all_to_all")
"""Collectives without a sum, which copy engines can do."""


def graph_text(problem: str, baseline: str) -> str:
    """A kernel that replays the baseline. problem: for its docstring; baseline: the text of baseline.py."""
    return with_baseline((_FOLDER / "graph.py").read_text().replace("__PROBLEM__", problem), baseline)


def windows_text(collective: str, copy_engine: bool) -> str:
    """A kernel that does one of `COLLECTIVES` on registered memory; with copy engines only those of `COPIED`."""
    text = (_FOLDER / "windows.py").read_text().replace("__COLLECTIVE__", collective)
    return text.replace('"__COPY_ENGINE__"', str(copy_engine))
