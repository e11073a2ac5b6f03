"""What crashes and disks do to a file of lines: it ends early, or one of its bytes is another."""

from typing import NamedTuple

from hypothesis import strategies as st


class Flip(NamedTuple):
    """One byte of a file is another."""

    data: bytes
    line: int
    """The line that it lies in, from 0; its end belongs to it."""


def flips(whole: bytes, start: int = 0) -> st.SearchStrategy[Flip]:
    """Files with one byte, from `start` on, that is another."""

    def flip(at: int, by: int) -> Flip:
        return Flip(whole[:at] + bytes([whole[at] ^ by]) + whole[at + 1 :], whole[:at].count(b"\n"))

    return st.builds(flip, st.integers(start, len(whole) - 1), st.integers(1, 255))


def whole_lines(whole: bytes, length: int) -> int:
    """Lines of which a file that ends after `length` bytes has everything but perhaps their end."""
    return sum(len(b"\n".join(whole.split(b"\n")[: number + 1])) <= length for number in range(whole.count(b"\n")))
