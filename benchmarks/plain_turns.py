"""The turns of a plain loop: call times, and on GPUs device times of queued batches, each of the slowest rank."""

from dataclasses import dataclass, field

from benchmarks.plain_loop.messages import TimeCalls, TimeQueued, Times
from benchmarks.plain_ranks import PlainRanks
from sandbox.machine.devices import kind_of

CALLS = 24
WARM = 5
TURN_S = 1.0
"""Target time of one clock's batches in a turn, in seconds."""
FEWEST, MOST = 5, 60
"""Repetitions of a turn."""
FEWER_CALLS = (CALLS, 8, 2, 1)
"""Calls of a queued batch; fewer are tried if a launch queue is too short."""
WAIT_SHARE, LEAST_WAIT_US, MOST_WAIT_US = 2.0, 3_000.0, 250_000.0
"""The stream is occupied for this multiple of the calls' own time, within these limits in microseconds."""


@dataclass
class PlainTimes:
    """Microseconds per call, one number for each repetition."""

    call: list[float] = field(default_factory=list)
    device: list[float] = field(default_factory=list)
    """Empty if calls cannot be queued."""


class PlainTurns:
    """The turns of one problem, which the ranks have open."""

    def __init__(self, ranks: PlainRanks) -> None:
        self.ranks = ranks
        self.queued_calls = CALLS if kind_of(ranks.device).has_gate else 0
        """Calls of a queued batch; 0: not even one call can be queued without waiting for the device."""

    async def turn(self) -> PlainTimes:
        """Runs one turn. The first calls after the stop do not count.

        Raises:
            PlainLoopFailed: a call failed, or did not end.
        """
        async with self.ranks.awake():
            await self.ranks.time(TimeCalls(repetitions=2, calls=CALLS, warm=CALLS))
            probe = await self.ranks.time(TimeCalls(repetitions=1, calls=CALLS, warm=WARM))
            repetitions = repetitions_for(probe.us[0])
            times = PlainTimes()
            times.call = (await self.ranks.time(TimeCalls(repetitions, CALLS, WARM))).us
            if self.queued_calls:
                times.device = await self._queued(min(times.call), repetitions)
        return times

    async def _queued(self, call_us: float, repetitions: int) -> list[float]:
        """Measures device times; finds in the first turn how many calls can be queued."""
        while self.queued_calls:
            tried = self._order(1, call_us)
            if (await self._try(tried)).queued:
                times = await self._try(self._order(repetitions, call_us))
                if times.queued:
                    return times.us
            self.queued_calls = next((calls for calls in FEWER_CALLS if calls < self.queued_calls), 0)
        return []

    async def _try(self, order: TimeQueued) -> Times:
        """Times batches; repeats a single batch that was not queued, because it may have waited for memory."""
        times = await self.ranks.time(order)
        if order.repetitions == 1 and not times.queued:
            times = await self.ranks.time(order)
        return times

    def _order(self, repetitions: int, call_us: float) -> TimeQueued:
        return TimeQueued(repetitions, self.queued_calls, wait_us(self.queued_calls, call_us))


def repetitions_for(call_us: float) -> int:
    """The repetitions of a turn, for calls of `call_us`."""
    wanted = int(TURN_S / max((CALLS + WARM) * call_us / 1e6, 1e-6))
    return max(FEWEST, min(wanted, MOST))


def wait_us(calls: int, call_us: float) -> float:
    """Microseconds to occupy the stream, so that `calls` calls are queued meanwhile."""
    return max(LEAST_WAIT_US, min(WAIT_SHARE * calls * call_us, MOST_WAIT_US))
