"""Hooks by which the harness sees that a kernel is being compiled.

The harness assigns both names before it loads a kernel. They are called on every rank that finds nothing in
the cache, around the compilation or the wait for the rank that compiles.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

on_compile_start: Callable[[], object] | None = None
on_compile_end: Callable[[], object] | None = None


@contextmanager
def shown() -> Iterator[None]:
    """Call the hooks around a block; the end hook runs when the block fails, too."""
    if on_compile_start is not None:
        on_compile_start()
    try:
        yield
    finally:
        if on_compile_end is not None:
            on_compile_end()
