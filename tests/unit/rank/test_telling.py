"""Exceptions that cannot be told are told by their name and their place."""

import pytest

from sandbox.rank.kernel.traceback import describe, kernel_line, stand_in


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError

    @property
    def line(self) -> int:
        raise SystemExit


class Liar(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise RuntimeError


class Nameless(Exception, metaclass=Liar):
    pass


@pytest.mark.parametrize("error", [Unspeakable(), Nameless()])
def test_an_exception_whose_own_methods_fail_has_a_stand_in(error: Exception) -> None:
    try:
        raise error
    except Exception as caught:
        told = stand_in(caught)
    name = "Unspeakable" if isinstance(error, Unspeakable) else "Nameless"
    assert str(told) == "what it says cannot be read"
    assert describe(told, __file__).startswith(f"{name}: what it says cannot be read")
    assert kernel_line(told, __file__) > 0
