"""The first calls of reference worlds, in which libraries load, allocate and connect, so that no timed call does."""

from collections.abc import Sequence

from sandbox.machine.devices.pace import warm_calls
from sandbox.protocol.frames import Kind
from sandbox.protocol.messages import ChooseBatch
from sandbox.worlds.exchange import Exchange
from sandbox.worlds.world import World


def make_first_calls(exchange: Exchange, worlds: Sequence[World]) -> None:
    """Calls the baseline on one input and then, if shapes vary between inputs, on a new input in each call.

    exchange: of the references' side, whose worlds have loaded the baseline.

    Raises:
        WorldFailed, Deadline: a world failed or was too slow.
    """
    prepared = exchange.prepared
    _assemble(exchange, worlds, 1)
    for world in worlds:
        world.tell(ChooseBatch(0, 1, warm_calls(prepared.call_seconds)))
    for world in worlds:
        exchange.await_all(world, Kind.CHOSEN, prepared.limits.first_call)
    left = prepared.distinct_calls
    while left > 0:
        count = min(left, prepared.layout.slots)
        _run(exchange, worlds, count)
        left -= count


def _assemble(exchange: Exchange, worlds: Sequence[World], count: int) -> None:
    exchange.draw(count, expect_poison=False)
    exchange.arm(*worlds)


def _run(exchange: Exchange, worlds: Sequence[World], count: int) -> None:
    """Runs one batch per world, one world after another, because worlds on the same GPUs would share them by time slices."""
    limit = exchange.prepared.limits.first_call
    _assemble(exchange, worlds, count)
    exchange.reveal(0, count)
    for world in worlds:
        world.tell(ChooseBatch(0, count))
        exchange.await_all(world, Kind.CHOSEN, limit)
        world.go()
        exchange.await_done(world, limit)
    exchange.discard_outputs()
