"""pkb-arena's engine. The names below are its Python interface (docs/guide/python.md), imported on first use."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arena.api import Arena, RunOptions
    from arena.errors import ArenaError, MachineError, RunCancelled, RunRefused, UsageError
    from arena.records.run_record import RunRecord
    from sandbox.protocol.verdict import Verdict

_HOMES = {
    "Arena": "arena.api",
    "RunOptions": "arena.api",
    "ArenaError": "arena.errors",
    "MachineError": "arena.errors",
    "RunCancelled": "arena.errors",
    "RunRefused": "arena.errors",
    "UsageError": "arena.errors",
    "RunRecord": "arena.records.run_record",
    "reward": "arena.api",
    "Verdict": "sandbox.protocol.verdict",
}

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
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
