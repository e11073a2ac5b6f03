"""pkb-arena's engine. The names below are its Python interface (docs/guide/python.md), imported on first use."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arena.api import Arena, RunOptions, reward
    from arena.errors import ArenaError, MachineError, RunCancelled, RunRefused, UsageError
    from arena.records.run_record import RunRecord
    from sandbox.protocol.verdict import Verdict

_HOMES = ("arena.errors", "sandbox.protocol.verdict", "arena.records.run_record", "arena.api")

__all__ = [
    "Arena",
    "ArenaError",
    "MachineError",
    "RunCancelled",
    "RunOptions",
    "RunRecord",
    "RunRefused",
    "UsageError",
    "Verdict",
    "reward",
]


def __getattr__(name: str) -> Any:
    for home in _HOMES if name in __all__ else ():
        if hasattr(module := importlib.import_module(home), name):
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
