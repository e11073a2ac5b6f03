"""The table of an input slot: where each of its tensors lies. No torch, so that the referee can pass tables on."""

import msgspec


class TensorPlace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One tensor of an input slot."""

    name: str
    dtype: int
    """Index into `sandbox.memory.slots.DTYPES`."""
    shape: tuple[int, ...]
    offset: int
    """Bytes from the start of the slot."""
