"""Arguments of compiled functions: the types of C, what they hold, and what a pointer takes."""

import ctypes
import math
from typing import Any

import pytest
import torch

from sandbox.kit import tables
from sandbox.kit.compilers.arguments import SCALARS, Function, Parameter, converter, ctypes_of, exported
from sandbox.kit.errors import ArgumentError, CompileError
from sandbox.kit.layout import Px, PxNumbers


def function_of(parameter: str) -> tuple[Function, Parameter]:
    function = exported(f'extern "C" void f({parameter}) {{ }}')["f"]
    return function, function.parameters[0]


def converted(parameter: str, value: Any, device: str = "cpu") -> Any:
    function, found = function_of(parameter)
    return converter(found, 0, function, device)(value)


@pytest.mark.parametrize("kind", [kind for kind, scalar in SCALARS.items() if scalar.kind != "float"])
def test_integers_are_held_to_their_type(kind: str) -> None:
    scalar, bits = SCALARS[kind], 8 * ctypes.sizeof(ctypes_of(SCALARS[kind]))
    low, high = (0, 1) if kind == "bool" else (scalar.low, scalar.high)
    assert kind == "bool" or (low, high) in ((0, 2**bits - 1), (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
    for value in (low, high):
        assert converted(f"{kind} n", value) == ctypes_of(scalar)(value).value == value
    for value in (low - 1, high + 1):
        with pytest.raises(
            ArgumentError, match=rf"argument 1 \(n\) of f is `{kind}` and holds {low}..{high}, got {value}"
        ):
            converted(f"{kind} n", value)


def test_floats_are_rounded_to_their_type() -> None:
    assert [converted(f"{kind} x", 0.1) == 0.1 for kind in ("float", "double")] == [False, True]
    assert converted("float x", 1e300) == math.inf
    assert [ctypes_of(SCALARS[kind]) for kind in ("bool", "float", "double", "u8", "i8")] == [
        *(ctypes.c_bool, ctypes.c_float, ctypes.c_double),
        *(ctypes.c_uint8, ctypes.c_int8),
    ]


@pytest.mark.parametrize(
    ("parameter", "dtype"),
    [
        *(("const float* x", "float32"), ("bf16 x[4]", "bfloat16"), ("__half* x", "float16"), ("double* x", "float64")),
        *(
            ("bool* x", "bool"),
            ("i8* x", "int8"),
            ("long* x", "int64"),
            ("u8* x", None),
            ("char* x", None),
            ("void* x", None),
        ),
    ],
)
def test_pointers_take_tensors_of_their_dtype(parameter: str, dtype: str | None) -> None:
    assert function_of(parameter)[1].dtype == dtype
    right, wrong = torch.ones(2, dtype=getattr(torch, dtype or "int32")), torch.ones(2, dtype=torch.complex64)
    assert converted(parameter, right) == right.data_ptr()
    if dtype is None:
        assert converted(parameter, wrong) == wrong.data_ptr()
        return
    with pytest.raises(ArgumentError, match=f"takes a {dtype} tensor, got complex64"):
        converted(parameter, wrong)


def test_addresses_and_places_of_tensors_are_checked() -> None:
    assert [converted("float* x", address) for address in (0, 2**64 - 1)] == [0, 2**64 - 1]
    for value, words in (
        *((-1, "address of 64 bits, got -1"), (2**64, "address of 64 bits"), (True, "or an address, got bool")),
        *(
            (torch.ones(4)[::2], "not contiguous"),
            (torch.ones(1, device="meta"), "takes a tensor on cpu, got one on meta"),
        ),
    ):
        with pytest.raises(ArgumentError, match=words):
            converted("float* x", value)
    with pytest.raises(ArgumentError, match="takes a tensor on cuda, got one on cpu"):
        converted("float* x", torch.ones(1), "cuda")
    one, two = torch.ones(1), torch.ones(2)
    assert list(converted("float** x", (one, two))) == [one.data_ptr(), two.data_ptr()]
    with pytest.raises(ArgumentError, match="takes a int64 tensor"):  # of addresses
        converted("float** x", one, "cuda")


def test_numbers_and_px_are_passed_by_value() -> None:
    px = Px()
    assert converted("Px px", px) is converted("const Px& px", px) is px
    assert list(converted("PxNumbers n", [3, True]).at[:3]) == [3, 1, 0]
    assert len(PxNumbers().at) == len(converted("PxNumbers n", [7] * 64).at)
    few, many = tables.numbers(range(65), torch.device("cpu"))
    assert (tables.numbers([7] * 64, torch.device("cpu")), few, many.tolist()) == (([7] * 64, 0), [], [*range(65)])
    for parameter, value, words in (
        ("Px px", 5, "takes symm.px .* got int"),
        ("PxNumbers n", [0] * 65, "takes a list of up to 64 ints"),
        ("PxNumbers n", [1, 2.5], "takes ints, got float at 1"),
        ("ncclWindow_t w", 5, "takes what nccl.window.* returns, got int"),
        ("float x", None, "takes a number, got NoneType"),
        ("int n", 1.0, "is `int` and takes an int, got float"),
    ):
        with pytest.raises(ArgumentError, match=words):
            converted(parameter, value)


@pytest.mark.parametrize("parameter", ["float& x", "struct Point p", "PxNumbers& n", "ncclWindow_t& w"])
def test_types_that_python_cannot_pass_are_named(parameter: str) -> None:
    with pytest.raises(CompileError, match=r"line 1 of the source: parameter .* of f has a type"):
        function_of(parameter)


def test_nameless_parameters_are_numbered() -> None:
    text = 'extern "C" int f(unsigned int, long long n, const float* __restrict__, int m[2 * N]) {'
    assert str(exported(text)["f"]) == "f(unsigned int argument1, long long n, const float* argument3, int* m)"
    kinds = "__global__ ", "", "__global__ "
    several = exported(
        "".join(f'extern "C" {kind}void {name}() {{}}\n' for kind, name in zip(kinds, "abc", strict=True))
    )
    assert [(each.name, each.kernel) for each in several.values()] == [("a", True), ("b", False), ("c", True)]
