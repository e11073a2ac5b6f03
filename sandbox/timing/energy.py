"""Power and energy per call of both sides, measured after timing in rows of untimed calls.

They are read from the GPUs' energy counters, which step only about every 0.1 s; a timed batch is shorter. The calls of
a row use stored inputs and their outputs are not compared, so the figures decide nothing.
"""

from collections.abc import Callable, Sequence
from statistics import mean

from sandbox.machine import nvml
from sandbox.machine.gpu_counters import EnergyReader, GpuPower
from sandbox.machine.nvml import NvmlMissing
from sandbox.machine.placement import RankGpu
from sandbox.protocol.result import Energy, SideEnergy
from sandbox.timing.turns import Batch, TimedSide, Turns

ROW_S, MOST_CALLS = 0.8, 100_000
"""Seconds of a row of calls on either side, and its most calls."""
Reader = Callable[[Sequence[RankGpu]], EnergyReader]


def reader_of(gpus: Sequence[RankGpu]) -> EnergyReader:
    """Returns a reader of the energy counters of the ranks' GPUs. Raises NvmlMissing."""
    by_minor = {gpu.minor: gpu for gpu in nvml.gpus()}
    return EnergyReader([by_minor[gpu.minor] for gpu in gpus])


def measure(turns: Turns, call_us: tuple[float, float], reader: Reader = reader_of) -> Energy:
    """Has both sides make calls in a row, and reads the counters meanwhile. Takes 2 * ROW_S seconds.

    call_us: medians of the timed calls in microseconds: (the baseline's or the rival's, the contender's).

    Raises:
        Failed, WorldFailed, Deadline: a call of the row failed.
    """
    if not turns.kind.on_gpus:
        return Energy(missing="CPU ranks have no counter of energy")
    sides: list[SideEnergy] = []
    for side, us in zip(turns.sides, call_us, strict=True):
        try:
            powers = _row(turns, side, us, reader)
        except NvmlMissing as missing:
            return Energy(missing=str(missing))
        watts = [power.watts for power in powers if power.watts is not None]
        if not powers or len(watts) < len(powers):
            return Energy(missing=next((power.missing for power in powers if power.missing), "no GPU was read"))
        error = max(power.error for power in powers)
        sides.append(SideEnergy(watts=mean(watts), joules=sum(watts) * us / 1e6, error=error))
    return Energy(baseline=sides[0], contender=sides[1])


def _row(turns: Turns, side: TimedSide, us: float, reader: Reader) -> list[GpuPower]:
    world = side.worlds[0]
    counters = reader(world.spec.gpus)
    calls = max(1, min(MOST_CALLS, int(ROW_S * 1e6 / max(us, 1e-3))))
    counters.begin()
    try:
        turns.get_ready(side, world, Batch(0, 1), 0, warm=calls)
    finally:
        found = counters.end()
        turns.stop_all()
    return found
