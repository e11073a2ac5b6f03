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
    """Of references that have just loaded the baseline, in all of them at the same time."""

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
        self._await(Kind.CHOSEN)
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
        self._await(Kind.ARMED)

    def _run(self, count: int) -> None:
        """A batch of so many fresh iterations, whose outputs nobody looks at."""
        trusted, own = self.stage.world, self.stage.limits.own
        self._assemble(count)
        ask(self.await_all, trusted, Reveal(REFERENCE, 0, count), Revealed, own)
        for world in self.worlds:
            world.tell(ChooseBatch(0, count))
        self._await(Kind.CHOSEN)
        for world in self.worlds:
            world.go()
        self._await(Kind.DONE)
        if not self.stage.layout.sealed:
            self._await(Kind.DELIVERED)
        ask(
            self.await_all, trusted, CompareOutputs([], REFERENCE), Compared, own
        )  # poisons the outputs again

    def _await(self, kind: Kind) -> None:
        for world in self.worlds:
            self.await_all(world, kind, self.stage.limits.first_call)
