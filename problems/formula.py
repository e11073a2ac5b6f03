"""Formulas in problem.toml: readable arithmetic for derived sizes and costs.

Names are size parameters, `W` (world size) and `b` (bytes per element of the run dtype). Operators: + - * / // % **,
comparisons and `x if c else y`; functions: min max ceil floor round sqrt log2 lcm gcd clamp(x, low, high) up(x, m),
which rounds x up to a multiple of m. Nothing else is allowed, so a problem folder from an unknown author is safe to
read.
"""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache

Number = int | float


LARGEST = 2.0**200
"""The largest absolute value of every part of a formula. Without a limit, powers of powers need hours."""


class FormulaError(ValueError):
    """A formula that cannot be read or evaluated; the message names the formula."""


def _up(x: Number, multiple: Number) -> int:
    return int(-(-x // multiple) * multiple)


def _clamp(x: Number, low: Number, high: Number) -> Number:
    return max(low, min(x, high))


_FUNCTIONS: dict[str, Callable[..., Number]] = {
    "min": min,
    "max": max,
    "ceil": math.ceil,
    "floor": math.floor,
    "round": round,
    "sqrt": math.sqrt,
    "log2": math.log2,
    "lcm": math.lcm,
    "gcd": math.gcd,
    "clamp": _clamp,
    "up": _up,
}
_BINARY: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Number, Number], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


@lru_cache(maxsize=2048)
def _parse(text: str) -> ast.expr:
    if len(text) > 600:
        raise FormulaError(f"formula longer than 600 characters: {text[:60]!r}...")
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise FormulaError(f"cannot read the formula {text!r}: {error.msg}") from None


def evaluate(text: str, names: Mapping[str, Number]) -> Number:
    """The value of a formula under the given names.

    Raises:
        FormulaError: unknown name or function, unreadable text, or arithmetic that fails (division by zero).
    """

    def value(node: ast.expr) -> Number:
        found = value_of(node)
        if not isinstance(found, int | float) or not abs(found) <= LARGEST:
            raise FormulaError(f"no number up to {LARGEST:.0e} in the formula {text!r}")
        return found

    def value_of(node: ast.expr) -> Number:
        match node:
            case ast.Constant(value=int() | float() as constant):
                return constant
            case ast.Name(id=name):
                if name not in names:
                    raise FormulaError(f"unknown name {name!r} in the formula {text!r}")
                return names[name]
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                base, exponent = value(left), value(right)
                if abs(exponent) > 16:
                    raise FormulaError(f"exponent beyond 16 in the formula {text!r}")
                return base**exponent
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return _BINARY[type(op)](value(left), value(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -value(operand)
            case ast.IfExp(test=ast.Compare(left=left, ops=[op], comparators=[right]), body=body, orelse=orelse) if (
                type(op) in _COMPARE
            ):
                chosen = body if _COMPARE[type(op)](value(left), value(right)) else orelse
                return value(chosen)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
                return _FUNCTIONS[name](*(value(argument) for argument in args))
        raise FormulaError(f"only arithmetic is allowed in a formula: {text!r}")

    try:
        return value(_parse(text))
    except (ZeroDivisionError, OverflowError, TypeError, ValueError, RecursionError) as error:
        if isinstance(error, FormulaError):
            raise
        raise FormulaError(f"cannot evaluate the formula {text!r}: {error}") from None
