"""Waiting for the answers of a world's ranks, with everything else served meanwhile."""

import time
from collections.abc import Callable

from sandbox.machine.time_source import TimeSource
from sandbox.protocol.frames import Kind
from sandbox.worlds import deadlines
from sandbox.worlds.failures import Deadline, HarnessFailed, WorldFailed
from sandbox.worlds.rank_wire import Received
from sandbox.worlds.world import World
from sandbox.worlds.world_process import MEMORY_CHECK_SECONDS


class Stopped(Exception):
    """The run was cancelled, or the engine hung up."""


class SettingRefused(Exception):
    """Sizes, world and dtype do not fit together."""


class Awaiting:
    """Waits as sandbox.worlds.exchange.AwaitAll says."""

    def __init__(
        self, poll: Callable[[float], None], stopped: Callable[[], bool], timer: TimeSource = time
    ) -> None:
        """poll(seconds): serves what arrives within that time. stopped(): nobody wants the answers any more."""
        self.poll = poll
        self.stopped = stopped
        self.timer = timer

    def __call__(self, world: World, kind: Kind, limit: float, may_be_late: bool = False) -> list[Received]:
        """One answer of this kind from every rank of a world.

        may_be_late: a deadline of the baseline world is not a failure either, and the caller deals with it.

        Raises:
            WorldFailed, Deadline: the contender's doing.
            HarnessFailed, SettingRefused: the baseline world's.
            Stopped: the run was cancelled meanwhile.
        """
        started = self.timer.monotonic()
        before = min(world.compile_seconds, deadlines.COMPILE)
        waited_before: float | None = None
        while True:
            try:
                missing = world.missing(kind)
                if not missing:
                    return world.take(kind)
                elapsed = self.timer.monotonic() - started
                # Compiling has a deadline of its own, for all of it together: ranks say themselves when they do it.
                compiled = min(world.compile_seconds, deadlines.COMPILE) - before
                left = limit - elapsed + compiled
                # Time without a core does not count, either. Within a batch of ordinary length a look would disturb, so the
                # first one comes halfway; and two are needed, since this process may have had no core itself.
                if left < limit / 2:
                    waited = world.waited_for_cores()
                    if waited_before is None:
                        waited_before = waited
                    else:
                        left += min(waited - waited_before, deadlines.WITHOUT_CORE)
                        if left < 0:
                            raise Deadline(missing, kind)
            except WorldFailed as failed:
                if world.spec.kernel:
                    raise
                if failed.kind == "REFUSED":
                    raise SettingRefused(failed.text) from None
                raise HarnessFailed(f"{failed}\n{failed.text}\n{world.said[-4000:]}") from None
            except Deadline as late:
                if world.spec.kernel or may_be_late:
                    raise
                message = f"ranks {late.ranks} of the baseline world did not answer within {limit:.0f} s"
                raise HarnessFailed(f"{message}\n{world.said[-4000:]}") from None
            if self.stopped():
                raise Stopped
            self.poll(min(0.25, max(left, 0.001)))
            if elapsed > MEMORY_CHECK_SECONDS:
                world.check_memory()  # takes milliseconds, so not within a batch of ordinary length
