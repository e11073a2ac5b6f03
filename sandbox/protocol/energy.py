"""Power and energy per call, as part of a result."""

import msgspec


class SideEnergy(msgspec.Struct, frozen=True):
    """Power and energy of one side of a run on GPUs."""

    watts: float
    """Mean power of a GPU over a row of calls."""
    joules: float
    """Energy of all ranks' GPUs for one call."""
    error: float
    """Share by which both may be off, by the steps of the counters."""


class Energy(msgspec.Struct, frozen=True):
    """Power and energy of both sides; or why they are not known."""

    baseline: SideEnergy | None = None
    """The rival's if there is one."""
    contender: SideEnergy | None = None
    missing: str = ""
