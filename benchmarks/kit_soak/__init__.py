"""The soak of the kit: its blocks, each called very often with every result compared."""

from importlib import import_module
from typing import Any

BLOCKS = (
    "staged_sum", "pushed", "resharded", "exchanged_rows", "summed", "clipped", "scaled", "joined", "multiplied",
    "fanned_out", "stepped", "differentiated", "attended", "routed", "cut",
)  # fmt: skip
"""The functions of `blocks.py` by name, without its import of torch."""
DEVICE_BLOCKS = ("swapped", "gathered", "pushed_by_root", "replayed", "passed_on", "recurred")
"""Those of `device_blocks.py`, for GPUs only."""


def block_named(name: str) -> Any:
    """The block of this name, as `benchmarks.kit_soak.soak.soak` takes it. Imports torch."""
    module = "blocks" if name in BLOCKS else "device_blocks"
    return getattr(import_module(f"benchmarks.kit_soak.{module}"), name)
