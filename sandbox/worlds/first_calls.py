"""The first calls of the worlds that run the baseline: what they load, allocate, connect and look up, no timed call waits for."""

from collections.abc import Sequence

from sandbox.machine.devices.pace import warm_calls
from sandbox.protocol.frames import Kind
from sandbox.protocol.messages import ChooseBatch
from sandbox.worlds.exchange import Exchange
from sandbox.worlds.world import World


class FirstCalls:
    """Of references that have just loaded the baseline."""

    def __init__(self, exchange: Exchange, worlds: Sequence[World]) -> None:
        """exchange: on the references' side."""
        self.exchange = exchange
        self.worlds = worlds
        self.stage = exchange.stage

    def make(self) -> None:
        """Calls on the same inputs; then, where shapes differ from call to call, calls on as many inputs as calls.

        Raises:
            WorldFailed, Deadline: a world did not make them.
        """
        self._assemble(1)
        for world in self.worlds:
            world.tell(ChooseBatch(0, 1, warm_calls(self.stage.call_seconds)))
        for world in self.worlds:
            self._await(world, Kind.CHOSEN)
        left = self.stage.distinct_calls
        while left > 0:
            count = min(left, self.stage.layout.slots)
            self._run(count)
            left -= count

    def _assemble(self, count: int) -> None:
        """Fresh iterations, and their arguments in every world."""
        self.exchange.draw(count, expect_poison=False)
        for world in self.worlds:
            self.exchange.arm(world)

    def _run(self, count: int) -> None:
        """A batch of so many fresh iterations, in one world after another: several worlds on the same GPUs would take turns
        by time slices. Nobody looks at the outputs."""
        self._assemble(count)
        self.exchange.reveal(0, count)
        for world in self.worlds:
            world.tell(ChooseBatch(0, count))
            self._await(world, Kind.CHOSEN)
            world.go()
            self.exchange.await_done(world, self.stage.limits.first_call)
        self.exchange.discard_outputs()

    def _await(self, world: World, kind: Kind) -> None:
        """First calls may take longer than others."""
        self.exchange.await_all(world, kind, self.stage.limits.first_call)
