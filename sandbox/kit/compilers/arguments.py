"""Checks and converts Python arguments for a compiled function, by one small closure per parameter."""

import ctypes
from collections.abc import Callable
from typing import Any

import torch

from sandbox.kit.compilers.signature import HANDLES, Function, Parameter, Scalar
from sandbox.kit.errors import ArgumentError
from sandbox.kit.layout import Px, PxNumbers

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
        for index, number in enumerate(value):
            if not isinstance(number, int):
                raise ArgumentError(f"{where} takes ints, got {type(number).__name__} at {index}")
            numbers.at[index] = number
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
