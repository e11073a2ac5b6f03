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


class Whole(click.IntRange):
    """A whole number, in a range if one is given."""

    name = "whole number"

    def _describe_range(self) -> str:
        return _range(self)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(_misfit(value, self), param, ctx)


class Number(click.FloatRange):
    """A number, in a range if one is given."""

    name = "number"

    def _describe_range(self) -> str:
        return _range(self)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(_misfit(value, self), param, ctx)
