"""Damage by crashes and disks to a file of lines: it ends early, or one byte has changed."""

from typing import NamedTuple

from hypothesis import strategies as st


class Flip(NamedTuple):
    """A file with one changed byte."""

    data: bytes
    line: int
    """The line of that byte, from 0. A line includes its end."""


def flips(whole: bytes, start: int = 0) -> st.SearchStrategy[Flip]:
    """Returns a strategy for the file with one changed byte at or after `start`."""

    def flip(at: int, by: int) -> Flip:
        return Flip(whole[:at] + bytes([whole[at] ^ by]) + whole[at + 1 :], whole[:at].count(b"\n"))

    return st.builds(flip, st.integers(start, len(whole) - 1), st.integers(1, 255))


def whole_lines(whole: bytes, length: int) -> int:
    """Counts the lines that are whole, except perhaps for their end, in a file cut after `length` bytes."""
    return sum(len(b"\n".join(whole.split(b"\n")[: number + 1])) <= length for number in range(whole.count(b"\n")))
