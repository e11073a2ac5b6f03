"""Advice on usual mistakes: other entry points, files beside kernels, packages that are not installed, waits that gave up."""

import re

_FOLDER = "A kernel of several files is a folder with kernel.py: put code of your own beside it, and give the folder."
_ADVICE = (
    (
        r"the file defines .*\bModelNew\b",
        "Make the forward of ModelNew the function solution(...), with the baseline's parameters.",
    ),
    (
        r"No module named '([\w.]+)'",
        rf"\1 is not installed here. {_FOLDER} Install a package where pkb-arena is installed.",
    ),
    (r"NameError: name '(symm|cuda|cpp)' is not defined", r"Import it: from sandbox.kit import \1."),
    (r"attempted relative import", _FOLDER),
    (
        r"FileNotFoundError: .*\.(?:cu|cuh|cpp|cc|h|hpp|so|ptx)\b",
        "Put CUDA or C++ into a string, which sandbox.kit compiles, or beside kernel.py in a folder, and give the folder.",
    ),
    (
        r"a AsyncCollectiveTensor",
        "Wait for the collective: return wait_tensor(result) of torch.distributed._functional_collectives.",
    ),
    (r"is a Markdown fence", "Remove the lines with ``` and the text outside of them."),
    (
        r"unspecified launch failure|CUDA_ERROR_LAUNCH_FAILED",
        "A wait for a peer may have given up: those of the kit trap after 2 s. Every rank must signal as often as others wait.",
    ),
    (r"itimer", "The judge refuses timers that send signals (setitimer). Read a clock in the kernel instead."),
    (r"RecursionError", "A function calls itself without an end. The traceback shows which."),
)


def advice_on(text: str) -> str:
    """Advice on the text of a failure; empty where none of the usual mistakes is found."""
    for pattern, advice in _ADVICE:
        if found := re.search(pattern, text):
            return found.expand(advice)
    return ""
