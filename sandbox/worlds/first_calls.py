"""The first calls of the worlds that run the baseline: what they load, allocate, connect and look up, no timed call waits for."""

from collections.abc import Sequence

from sandbox.machine.devices.pace import warm_calls
from sandbox.protocol.frames import Kind
from sandbox.protocol.messages import (
    Arm,
    ChooseBatch,
    Compared,
    CompareOutputs,
    Draw,
    Drawn,
    Reveal,
    Revealed,
)
from sandbox.worlds.exchange import REFERENCE, AwaitAll, Stage, ask, fresh_seeds
from sandbox.worlds.world import World


class FirstCalls:
    """Of references that have just loaded the baseline."""

    def __init__(self, await_all: AwaitAll, stage: Stage, worlds: Sequence[World]) -> None:
        self.await_all = await_all
        self.stage = stage
        self.worlds = worlds

    def make(self) -> None:
        """Calls on the same inputs; then, where shapes differ from call to call, calls on as many inputs as calls.

        Raises:
            WorldFailed, Deadline: a world did not make them.
        """
        self._assemble(1)
        for world in self.worlds:
            world.tell(ChooseBatch(0, 1, warm_calls(self.stage.call_seconds)))
        self._await(Kind.CHOSEN, *self.worlds)
        left = self.stage.distinct_calls
        while left > 0:
            count = min(left, self.stage.layout.slots)
            self._run(count)
            left -= count

    def _assemble(self, count: int) -> None:
        """Fresh iterations, and their arguments in every world."""
        draw = Draw(fresh_seeds(count), intact=False, sides=[REFERENCE])
        drawn = ask(self.await_all, self.stage.world, draw, Drawn, self.stage.limits.own)
        for world in self.worlds:
            world.tell_each([Arm(reply.tables) for reply in drawn])
        self._await(Kind.ARMED, *self.worlds)

    def _run(self, count: int) -> None:
        """A batch of so many fresh iterations, in one world after another: several worlds on the same GPUs would take turns
        by time slices. Nobody looks at the outputs."""
        trusted, own = self.stage.world, self.stage.limits.own
        self._assemble(count)
        ask(self.await_all, trusted, Reveal(REFERENCE, 0, count), Revealed, own)
        for world in self.worlds:
            world.tell(ChooseBatch(0, count))
            self._await(Kind.CHOSEN, world)
            world.go()
            self._await(Kind.DONE, world)
            if not self.stage.layout.sealed:
                self._await(Kind.DELIVERED, world)
        poison = CompareOutputs([], REFERENCE)
        ask(self.await_all, trusted, poison, Compared, own)

    def _await(self, kind: Kind, *worlds: World) -> None:
        for world in worlds:
            self.await_all(world, kind, self.stage.limits.first_call)
