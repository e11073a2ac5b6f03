"""Checks and converts Python arguments for a compiled function, by one small closure per parameter.

The parameters are read from the source text, without a compiler: of `extern "C"` functions and `extern "C" __global__` kernels
whose parameters are pointers, arithmetic types and the struct Px.
"""

import ctypes
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from sandbox.kit.errors import ArgumentError, CompileError
from sandbox.kit.layout import Px, PxNumbers


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
    text = re.sub(r"\[[^]]*\]", "[]", text)  # the length of an array is no word of its type
    words = [word for word in re.findall(r"[\w:]+", text) if word not in _WORDS]
    pointers = text.count("*") + text.count("[")
    name = f"argument{index + 1}"
    if len(words) > 1 and words[-1] not in _TYPE_WORDS:
        name = words.pop()
    spelled = re.sub(rf"\b{re.escape(name)}\b\s*(\[\])?", "", text)
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


Converter = Callable[[Any], Any]
"""Takes the Python value, returns what ctypes passes; raises ArgumentError."""


def ctypes_of(scalar: Scalar) -> Any:
    """ctypes' type of an arithmetic type."""
    if scalar.kind == "bool":
        return ctypes.c_bool
    if scalar.kind == "float":
        return ctypes.c_float if scalar.bytes == 4 else ctypes.c_double
    return getattr(ctypes, f"c_{'' if scalar.low else 'u'}int{8 * scalar.bytes}")


def converter(parameter: Parameter, index: int, function: Function, device: str) -> Converter:
    """The converter of one parameter. device: where tensors must be, "cpu" or "cuda"."""
    where = f"argument {index + 1} ({parameter.name}) of {function.name}"
    if parameter.pointers > 1 and device == "cpu":
        return _pointer_list(where, parameter)
    if parameter.pointers:
        # On a GPU a pointer to pointers is a tensor of addresses.
        return _pointer(where, parameter, device, parameter.dtype if parameter.pointers == 1 else "int64")
    if parameter.is_px:
        return _px(where)
    if parameter.is_numbers:
        return _numbers(where)
    if parameter.is_handle:
        return _handle(where, parameter.handle)
    assert parameter.scalar is not None
    if parameter.scalar.kind == "float":
        return _float(where, ctypes_of(parameter.scalar))
    return _integer(where, parameter, parameter.scalar)


def _pointer(where: str, parameter: Parameter, device: str, wanted: str | None) -> Converter:
    dtype: torch.dtype | None = getattr(torch, wanted) if wanted else None
    on_cpu = device == "cpu"

    def convert(value: Any) -> int:
        if isinstance(value, torch.Tensor):
            if dtype is not None and value.dtype is not dtype:
                got = str(value.dtype).removeprefix("torch.")
                raise ArgumentError(f"{where} is `{parameter.type}` and takes a {wanted} tensor, got {got}")
            if not (value.is_cpu if on_cpu else value.is_cuda):
                raise ArgumentError(f"{where} takes a tensor on {device}, got one on {value.device}")
            if not value.is_contiguous():
                raise ArgumentError(
                    f"{where} got a tensor that is not contiguous (strides {tuple(value.stride())}); "
                    "call .contiguous(), or pass .data_ptr() and the strides"
                )
            return value.data_ptr()
        if isinstance(value, int) and not isinstance(value, bool):
            if 0 <= value < 1 << 64:
                return value
            raise ArgumentError(f"{where} takes an address of 64 bits, got {value}")
        raise ArgumentError(
            f"{where} is `{parameter.type}` and takes a tensor or an address, got {type(value).__name__}"
        )

    return convert


def _pointer_list(where: str, parameter: Parameter) -> Converter:
    one = _pointer(where, parameter, "cpu", parameter.dtype)

    def convert(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise ArgumentError(
                f"{where} is `{parameter.type}` and takes a list of tensors, got {type(value).__name__}"
            )
        # ctypes passes an array for a void*; it lives until the call returns.
        return (ctypes.c_void_p * len(value))(*map(one, value))

    return convert


def _px(where: str) -> Converter:
    def convert(value: Any) -> Px:
        if not isinstance(value, Px):
            raise ArgumentError(f"{where} takes symm.px (or the px of a team), got {type(value).__name__}")
        return value

    return convert


def _handle(where: str, name: str) -> Converter:
    def convert(value: Any) -> Any:
        passed = getattr(value, "passed", {}).get(name)
        if passed is None:
            raise ArgumentError(f"{where} takes what {HANDLES[name]} returns, got {type(value).__name__}")
        return passed

    return convert


def _numbers(where: str) -> Converter:
    def convert(value: Any) -> PxNumbers:
        numbers = PxNumbers()
        if not isinstance(value, list | tuple) or len(value) > len(numbers.at):
            raise ArgumentError(f"{where} takes a list of up to {len(numbers.at)} ints, got {value!r}"[:200])
        try:
            numbers.at[: len(value)] = value
        except TypeError:
            at, wrong = next(each for each in enumerate(value) if not isinstance(each[1], int))
            raise ArgumentError(f"{where} takes ints, got {type(wrong).__name__} at {at}") from None
        return numbers

    return convert


def _float(where: str, narrow: Any) -> Converter:
    def convert(value: Any) -> float:
        if isinstance(value, int | float):
            rounded: float = narrow(value).value  # a number beyond a float's range becomes infinite
            return rounded
        raise ArgumentError(f"{where} takes a number, got {type(value).__name__}")

    return convert


def _integer(where: str, parameter: Parameter, scalar: Scalar) -> Converter:
    low, high = (0, 1) if scalar.kind == "bool" else (scalar.low, scalar.high)

    def convert(value: Any) -> int:
        if not isinstance(value, int):
            raise ArgumentError(f"{where} is `{parameter.type}` and takes an int, got {type(value).__name__}")
        if low <= value <= high:
            return int(value)
        raise ArgumentError(f"{where} is `{parameter.type}` and holds {low}..{high}, got {value}")

    return convert
