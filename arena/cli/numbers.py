"""Numbers on the command line: their ranges and errors in words, where click says `1<=x<=64` and `integer range`."""

from typing import Any

import click


def _range(kind: click.IntRange | click.FloatRange) -> str:
    """What click puts in brackets at the end of an option's help: "1 to 64", "above 0", "1 or more"."""
    if kind.min is None:
        return ""
    if kind.max is not None:
        return f"{kind.min} to {kind.max}"
    return f"above {kind.min}" if kind.min_open else f"{kind.min} or more"


def _misfit(value: object, kind: click.IntRange | click.FloatRange) -> str:
    within = _range(kind)
    if kind.max is not None:
        within = f"from {within}"
    elif within and not kind.min_open:
        within = f"of {within}"
    return f"{str(value)!r} is not a {kind.name} {within}".rstrip()


class _InWords:
    """What the two kinds of numbers say of their range, and of a value that does not fit. Stands before click's own class."""

    def _describe_range(self: Any) -> str:
        return _range(self)

    def convert(self: Any, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)  # type: ignore[misc]
        except click.BadParameter:
            self.fail(_misfit(value, self), param, ctx)


class Whole(_InWords, click.IntRange):
    """A whole number, in a range if one is given."""

    name = "whole number"


class Number(_InWords, click.FloatRange):
    """A number, in a range if one is given."""

    name = "number"
