"""Reads the parameters of C++ functions from a source text, without a compiler.

It covers the functions that a kernel file exports: `extern "C"` functions and `extern "C" __global__` kernels whose
parameters are pointers, arithmetic types and the struct Px.
"""

import re
from dataclasses import dataclass

from sandbox.kit.errors import CompileError


@dataclass(frozen=True)
class Scalar:
    """An arithmetic C type: kind is "int", "float" or "bool"; low and high bound an int."""

    kind: str
    bytes: int
    low: int = 0
    high: int = 0


def _int(size: int, signed: bool) -> Scalar:
    bits = 8 * size
    return Scalar("int", size, -(1 << bits - 1) if signed else 0, (1 << bits - signed) - 1)


_SIGNED = {
    "char": 1,
    "signed char": 1,
    "short": 2,
    "int": 4,
    "long": 8,
    "long long": 8,
    "ptrdiff_t": 8,
    "ssize_t": 8,
    "intptr_t": 8,
}
_UNSIGNED = {"unsigned char": 1, "unsigned short": 2, "unsigned": 4, "unsigned int": 4, "unsigned long": 8}
_UNSIGNED |= {"unsigned long long": 8, "size_t": 8, "uintptr_t": 8}
SCALARS: dict[str, Scalar] = {
    "bool": Scalar("bool", 1),
    "float": Scalar("float", 4),
    "double": Scalar("float", 8),
    **{name: _int(size, True) for name, size in _SIGNED.items()},
    **{name: _int(size, False) for name, size in _UNSIGNED.items()},
    **{f"{letter}{8 * size}": _int(size, letter == "i") for letter in "iu" for size in (1, 2, 4, 8)},
    **{f"int{8 * size}_t": _int(size, True) for size in (1, 2, 4, 8)},
    **{f"uint{8 * size}_t": _int(size, False) for size in (1, 2, 4, 8)},
}

HANDLES = {"ncclDevComm": "nccl.devcomm(...)", "ncclWindow": "nccl.window(...)", "ncclLLA2AHandle": "nccl.devcomm(...)"}
"""Types of backends that CUDA kernels take by value, and the call that returns the object to pass. In C, _t follows
each."""

_FLOAT_POINTEES = {
    "float": "float32",
    "double": "float64",
    "bf16": "bfloat16",
    "__nv_bfloat16": "bfloat16",
    "nv_bfloat16": "bfloat16",
    "f16": "float16",
    "__half": "float16",
    "half": "float16",
}
_WORDS = {"const", "volatile", "struct", "restrict", "register", "static", "inline"}
_TYPE_WORDS = {"unsigned", "signed", "short", "long", "int", "char", "float", "double", "bool"}
_ATTRIBUTE = re.compile(r"\b__(?:global|restrict|grid_constant|noinline|forceinline)__\b|\b__restrict\b")
_BOUNDED = re.compile(r"\b__(?:launch_bounds|cluster_dims|maxnreg|attribute|block_size)__\s*\((?:[^()]|\([^()]*\))*\)")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_HEAD = re.compile(r'\bextern\s+"C"\s+(?P<returns>[\w\s:*]*?)\b(?P<name>\w+)\s*\((?P<parameters>[^(){};]*)\)\s*\{')


@dataclass(frozen=True)
class Parameter:
    """One parameter. `type` is its C spelling without the name; `scalar` is set for arithmetic types only."""

    name: str
    type: str
    base: str
    pointers: int = 0
    scalar: Scalar | None = None

    @property
    def is_px(self) -> bool:
        """Whether it takes `symm.px` (by value or by reference)."""
        return self.base == "Px"

    @property
    def is_numbers(self) -> bool:
        """Whether it takes a list of ints by value (CUDA only)."""
        return self.base == "PxNumbers" and not self.pointers

    @property
    def handle(self) -> str:
        """The name in HANDLES, if the type is one of a backend."""
        return self.base.removesuffix("_t")

    @property
    def is_handle(self) -> bool:
        """Whether it takes an object of a backend by value (CUDA only)."""
        return self.handle in HANDLES and not self.pointers

    @property
    def dtype(self) -> str | None:
        """torch's name of the dtype that a pointer requires; None if it accepts any dtype."""
        if self.base in _FLOAT_POINTEES:
            return _FLOAT_POINTEES[self.base]
        scalar = SCALARS.get(self.base)
        if scalar is None or self.base == "char":
            return None
        if scalar.kind == "bool":
            return "bool"
        # Kernels move raw bits as unsigned words, so only signed integers require a dtype.
        return f"int{8 * scalar.bytes}" if scalar.low < 0 else None


@dataclass(frozen=True)
class Function:
    """One exported function. `kernel`: whether it is a CUDA __global__ function."""

    name: str
    returns: str
    parameters: tuple[Parameter, ...]
    kernel: bool = False

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{p.type} {p.name}' for p in self.parameters)})"


def exported(source: str) -> dict[str, Function]:
    """The `extern "C"` functions that the source defines, by name. Raises CompileError for an unsupported parameter."""
    text = _COMMENT.sub(_blank, source)
    text = _BOUNDED.sub(_blank, text)
    text = _ATTRIBUTE.sub(_blank, text)
    functions = {}
    for match in _HEAD.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        listed = match["parameters"].strip()
        parts = [] if listed in ("", "void") else listed.split(",")
        parameters = tuple(_parameter(part, index, match["name"], line) for index, part in enumerate(parts))
        # Attributes are replaced by as many spaces, so positions in `text` and `source` agree.
        kernel = "__global__" in source[match.start() : match.start("parameters")]
        returns = " ".join(word for word in match["returns"].split() if word not in _WORDS)
        functions[match["name"]] = Function(match["name"], returns, parameters, kernel)
    return functions


def _blank(match: re.Match[str]) -> str:
    """As many spaces as the match has characters, with its line breaks, so that positions stay."""
    return re.sub(r"[^\n]", " ", match[0])


def _parameter(text: str, index: int, function: str, line: int) -> Parameter:
    words = [word for word in re.findall(r"[\w:]+", text) if word not in _WORDS]
    pointers = text.count("*") + text.count("[")
    name = f"argument{index + 1}"
    if len(words) > 1 and words[-1] not in _TYPE_WORDS:
        name = words.pop()
    spelled = re.sub(rf"\b{re.escape(name)}\b\s*(\[\w*\])?", "", text)
    spelled = " ".join(re.sub(r"\brestrict\b", "", spelled).split()) + ("*" if "[" in text else "")
    base = " ".join(words)
    parameter = Parameter(name, spelled, base, pointers, None if pointers else SCALARS.get(base))
    reference = "&" in text
    by_value = pointers or parameter.scalar or parameter.is_numbers or parameter.is_handle
    if (parameter.is_px and not pointers) or (not reference and by_value):
        return parameter
    raise CompileError(
        f"line {line} of the source: parameter `{text.strip()}` of {function} has a type that "
        "cannot be passed from Python; "
        "use pointers, arithmetic types, Px or (in CUDA) PxNumbers and NCCL's handles"
    )
