"""Reference forms of the baseline: kernels that the judge runs like any other, to compare with the baseline as called.

graph.py      the baseline in a CUDA graph: without the cost of launching
windows.py    a plain collective by NCCL on registered symmetric memory, with its own kernels or with copy engines
"""

from pathlib import Path

from sandbox.kit.templates import with_baseline

_FOLDER = Path(__file__).parent
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
"""The collectives that windows.py has."""
COPIED = ("all_gather", "all_to_all")
"""Those that add nothing up: copy engines can do them."""


def graph_text(problem: str, baseline: str) -> str:
    """A kernel that replays the baseline. problem: for its docstring; baseline: the text of baseline.py."""
    return with_baseline((_FOLDER / "graph.py").read_text().replace("__PROBLEM__", problem), baseline)


def windows_text(collective: str, copy_engine: bool) -> str:
    """A kernel that does one of `COLLECTIVES` on registered memory; with copy engines only those of `COPIED`."""
    text = (_FOLDER / "windows.py").read_text().replace("__COLLECTIVE__", collective)
    return text.replace('"__COPY_ENGINE__"', str(copy_engine))
