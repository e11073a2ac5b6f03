"""Labels: hints from a kernel's text at the source of its speed. They stand beside a verdict and never change it.

The text is read line by line and not parsed: it is not trusted, and a parser can be made to crash. A text that hides what it
does gets no label.
"""

import re
from itertools import takewhile

LIBRARY = "library calls only"
"""It compiles and maps nothing of its own: what it gains comes from other calls to the library."""
BASELINE = "calls the baseline"
FALLBACK = "falls back to the library"
"""An except that computes: a kernel that never works is judged for what is called in its place."""
NO_DEVICE_TIME = "no device time: a call waits for the GPU, or launches more than a queue holds"
"""Seen by the clock, not by the text: of the baseline, the kernel or both."""

REUSES = "returns the same memory again, so each output is copied before the next call: return fresh tensors"
"""Said by the kernel's own ranks."""

OWN_CODE = (
    "sandbox.kit",
    "triton",
    "cupy",
    "cuda",
    "cutlass",
    "numba",
    "ctypes",
    "cffi",
    "torch.utils.cpp_extension",
    "torch.distributed._symmetric_memory",
    "utils.cuda_helpers",
    "utils.triton_helpers",
)
"""Modules through which a kernel brings code or memory of its own."""
LINES, LONGEST_LINE = 5000, 400
"""Lines and characters that are read: imports and handlers beyond them are not seen."""
_FROM = re.compile(r"\s*from\s+([\w.]+)\s+import\s+(.*)")
_IMPORT = re.compile(r"\s*import\s+(.*)")
_EXCEPT = re.compile(r"\s*except\b.*:")
_CALL = re.compile(r"\b(torch|dist|baseline|F)\b[\w.]*\(")


def labels(source: str) -> list[str]:
    """The labels of a kernel's text, in a fixed order."""
    lines = [line for line in source.splitlines()[:LINES] if len(line) <= LONGEST_LINE]
    modules = [module for line in lines for module in _imported(line)]
    found = []
    if any(_within(module, "problems") for module in modules):
        found.append(BASELINE)
    if not any(_within(module, own) for module in modules for own in OWN_CODE):
        found.append(LIBRARY)
    if any(_computes(lines, number) for number, line in enumerate(lines) if _EXCEPT.match(line)):
        found.append(FALLBACK)
    return found


def _imported(line: str) -> list[str]:
    """Dotted names that a line imports, those of `from a import b` as a.b."""
    if named := _FROM.match(line):
        return [f"{named[1]}.{name.split()[0]}" for name in named[2].strip("()").split(",") if name.split()]
    if plain := _IMPORT.match(line):
        return [name.split()[0] for name in plain[1].split(",") if name.split()]
    return []


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _computes(lines: list[str], number: int) -> bool:
    """Whether the body of the except in this line calls the library, and is no mere error message."""
    head = lines[number]
    depth = len(head) - len(head.lstrip())
    body = takewhile(
        lambda line: not line.strip() or len(line) - len(line.lstrip()) > depth, lines[number + 1 :]
    )
    return any(_CALL.search(line) and not line.lstrip().startswith(("raise ", "#")) for line in body)
