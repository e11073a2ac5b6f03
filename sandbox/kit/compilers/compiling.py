"""Hooks that report to the harness that a kernel is being compiled.

The harness assigns both names before it loads a kernel. They are called on every rank that finds nothing in
the cache, around the compilation or the wait for the rank that compiles. A kernel that compiles or tunes something
itself can report this by `with compiling.shown(): ...`, which has a separate deadline.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

on_compile_start: Callable[[], object] | None = None
on_compile_end: Callable[[], object] | None = None
_lock = threading.Lock()
_depth = 0


def begin() -> None:
    """Begins a compilation; call `end` afterwards. Nested compilations count as one."""
    global _depth
    with _lock:
        _depth += 1
        if _depth == 1 and on_compile_start is not None:
            on_compile_start()


def end() -> None:
    """Ends a compilation."""
    global _depth
    with _lock:
        _depth -= 1
        if _depth == 0 and on_compile_end is not None:
            on_compile_end()


@contextmanager
def shown() -> Iterator[None]:
    """Calls the hooks around a block. The end hook is also called if the block fails."""
    begin()
    try:
        yield
    finally:
        end()
