"""Number types of the command line, with ranges and errors in words instead of click's `1<=x<=64`."""

import math
from typing import Any, NoReturn

import click


class _InWords:
    """Describes ranges and invalid values in words. A base class, which must precede click's own class."""

    def _describe_range(self: Any) -> str:
        """Returns the range that click appends to an option's help: "1 to 64", "above 0", "1 or more"."""
        if self.min is None:
            return ""
        if self.max is not None:
            return f"{self.min} to {self.max}"
        return f"above {self.min}" if self.min_open else f"{self.min} or more"

    def convert(self: Any, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)  # type: ignore[misc]
        except click.BadParameter:
            self.fail_in_words(value, param, ctx)

    def fail_in_words(self: Any, value: object, param: click.Parameter | None, ctx: click.Context | None) -> NoReturn:
        """Raises BadParameter with the range."""
        within = self._describe_range()
        if self.max is not None:
            within = f"from {within}"
        elif within and not self.min_open:
            within = f"of {within}"
        raise click.BadParameter(f"{str(value)!r} is not a {self.name} {within}".rstrip(), ctx, param)


class Whole(_InWords, click.IntRange):
    """A whole number, in a range if one is given."""

    name = "whole number"


class Number(_InWords, click.FloatRange):
    """A finite number, in a range if one is given."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):  # NaN passes every comparison with a bound
            self.fail_in_words(value, param, ctx)
        return number
