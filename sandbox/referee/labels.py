"""Labels: hints from a kernel's text about the source of its speed. They never change a verdict.

The text is read line by line, because it is untrusted and can crash a parser. A text that hides what it does gets no label.
"""

import re
from itertools import islice, takewhile

from sandbox.machine.backends import Backend, used, within
from sandbox.protocol.kernel_files import Kernel, python_texts

LIBRARY = "library calls only"
"""The kernel has no code or memory of its own."""
BASELINE = "calls the baseline"
FALLBACK = "falls back to the library"
"""A handler of exceptions calls the library, so the kernel itself may never have worked."""
NO_DEVICE_TIME = "no device time: a call waits for the GPU, or launches more than a queue holds"
"""Found by timing: the baseline, the kernel or both cannot be queued."""

REUSES = "returns the same memory again, so each output is copied before the next call: return fresh tensors"
"""Reported by the kernel's ranks."""
SHORT_US = 20.0
SHORT = (
    "short calls: {:.1f} us of harness beside each are subtracted, and a kernel with a loop of its own could save them"
)
"""Found by timing: a call takes less than SHORT_US."""

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
"""Modules that give a kernel its own code or memory."""
LINES, LONGEST_LINE, HANDLERS = 5000, 400, 10
"""Most lines of all files, characters of a line, and handlers of exceptions that are read. No text may keep the referee busy."""
COMPILED = (".cu", ".cuh", ".cpp", ".cc", ".cxx", ".c", ".h", ".hpp")
"""Endings of files that give a kernel code of its own."""
_FROM = re.compile(r"\s*from\s+([\w.]+)\s+import\s+(.*)")
_IMPORT = re.compile(r"\s*import\s+(.*)")
_EXCEPT = re.compile(r"\s*except\b.*:")
_CALL = re.compile(r"\b(?:torch|dist|baseline|F)((?:\.\w+)*)\(")
_ASKS = re.compile(r"(?:get|is|set)_|(?:(?:empty|zeros|ones)\w*|synchronize|barrier|manual_seed|device|tensor)$")
"""Matches names of library functions that ask, set or allocate something, and neither compute nor communicate."""
_DEFINES = re.compile(r"\s*(?:(?:async )?def (\w+)\(|(\w+)\s*=\s*lambda\b)")


def labels(kernel: Kernel) -> list[str]:
    """The labels of a kernel's Python, in a fixed order. C++ or CUDA files count as its own code."""
    lines = _lines(kernel)
    modules = {module for line in lines for module in _imported(line)}
    found = [backend.label for backend in used(modules)]
    if any(within(module, "problems") for module in modules):
        found.append(BASELINE)
    compiled = any(name.endswith(COMPILED) for name in kernel.files)
    if not compiled and not any(within(module, own) for module in modules for own in OWN_CODE):
        found.append(LIBRARY)
    handlers = [number for number, line in enumerate(lines) if _EXCEPT.match(line)][:HANDLERS]
    if any(_falls_back(lines, number) for number in handlers):
        found.append(FALLBACK)
    return found


def backends_of(kernel: Kernel, *, anywhere: bool = False) -> list[Backend]:
    """The backends that a kernel always imports, not within a function or a condition; with `anywhere`, all of them."""
    lines = (line for line in _lines(kernel) if anywhere or not line[:1].isspace())
    return used(module for line in lines for module in _imported(line))


def _lines(kernel: Kernel) -> list[str]:
    lines = (line for text in python_texts(kernel) for line in text.splitlines())
    return [line for line in islice(lines, LINES) if len(line) <= LONGEST_LINE]


def _imported(line: str) -> list[str]:
    """The dotted names that a line imports; `from a import b` gives a.b."""
    if named := _FROM.match(line):
        return [f"{named[1]}.{name.split()[0]}" for name in named[2].strip("()").split(",") if name.split()]
    plain = _IMPORT.match(line)
    return [name.split()[0] for name in plain[1].split(",") if name.split()] if plain else []


def _falls_back(lines: list[str], number: int) -> bool:
    """Whether the handler that starts in this line replaces a result by the library's.

    In a function it calls the library and does not raise again. At the top level it defines a function that calls the
    library, and the rest of the text calls this function.
    """
    depth = _depth(lines[number])
    body = list(takewhile(lambda line: not line.strip() or _depth(line) > depth, lines[number + 1 :]))
    own, defined, inside = [], [], ""
    for line in body:
        if inside and line.strip() and _depth(line) > _depth(inside):
            if _computes(line):
                defined.append(inside)
        elif _DEFINES.match(line):
            inside = line
            if "lambda" in line and _computes(line):
                defined.append(line)
        else:
            inside = ""
            own.append(line.lstrip())
    if depth and not any(line.startswith("raise") for line in own) and any(map(_computes, own)):
        return True
    rest = "\n".join(lines[:number] + lines[number + 1 + len(body) :])
    names = [found[1] or found[2] for line in defined if (found := _DEFINES.match(line))]
    return any(re.search(rf"(?<!def )\b{name}\s*\(", rest) for name in names)


def _computes(line: str) -> bool:
    """Whether a line calls a library function that computes or communicates."""
    comment = line.lstrip().startswith("#")
    return not comment and any(not _ASKS.match(path.rpartition(".")[2]) for path in _CALL.findall(line))


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())
