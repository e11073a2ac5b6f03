"""The table of an input slot: the place of each tensor. It needs no torch, so that the referee can pass it on."""

import msgspec


class TensorPlace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The place of one tensor in an input slot."""

    name: str
    dtype: int
    """Index into `sandbox.memory.slots.DTYPES`."""
    shape: tuple[int, ...]
    offset: int
    """Bytes from the start of the slot."""
