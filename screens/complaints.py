"""Errors as one line for a toast."""

from arena.errors import ArenaError


def explain(error: ArenaError) -> str:
    """What is wrong, and what to do."""
    return f"{error.message} → {error.advice}" if error.advice else error.message
