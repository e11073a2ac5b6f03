"""Calls one block of the kit on this rank and compares every result, while ranks are late at random."""

import random
import time
from collections.abc import Callable

import torch

from sandbox.kit import symm
from sandbox.kit.symmetric_memory.team import Team

LATE_SHARE, LATE_SECONDS = 0.05, 500e-6
"""Share of the calls to which a rank or its GPU is late, and the longest delay."""
LOOK_EVERY = 64
"""Calls between two reads of the number of errors, because a read waits for the device."""
CYCLES_PER_SECOND = 1_500_000_000
"""Approximate clock rate of a GPU, for torch.cuda._sleep. The exact length of a delay does not matter."""

CONFIGURATIONS, VARIANTS = 8, 5
"""Configurations (sizes and roots) that are drawn for one order, and values for each. Five calls with the same sizes
have five different values, so that a value of one of the last four calls shows."""

Call = Callable[[], torch.Tensor]
"""Makes a call with the drawn inputs, and compares its whole result on the device. Returns the number of wrong
elements: 0-dim int64. May be repeated. Collective."""
Block = Callable[[Team, int, random.Random], Call]
"""(team, number of the values, chance) -> a call. Draws the call's inputs and expected result, which takes several
times as long as the call. The chance is the same on all ranks, so they agree on sizes and roots."""


def soak(block: Block, first: int, calls: int, seed: int) -> tuple[int, int]:
    """Makes `calls` calls of a block on all ranks, from number `first` on, and compares every result (collective).

    seed: the same on all ranks. Returns the number of wrong elements on this rank, and the number of a wrong call or of
    one up to LOOK_EVERY calls before it (-1: no call was wrong).
    """
    team = symm.connect()
    shared, own = random.Random(seed), random.Random(seed * 1000 + team.rank)
    seeds = [shared.getrandbits(32) for _ in range(CONFIGURATIONS)]
    drawn: dict[tuple[int, int], Call] = {}
    turns = [0] * CONFIGURATIONS
    wrong, first_wrong = 0, -1
    found: list[torch.Tensor] = []
    for number in range(first, first + calls):
        place = shared.randrange(CONFIGURATIONS)
        turns[place] = turn = (turns[place] + 1) % VARIANTS
        call = drawn.get((place, turn))
        if call is None:
            values = first + place * VARIANTS + turn
            call = drawn[place, turn] = block(team, values, random.Random(seeds[place]))
        if own.random() < LATE_SHARE:
            be_late(own)
        found.append(call())
        if len(found) == LOOK_EVERY or number == first + calls - 1:
            counted = int(torch.stack(found).sum())
            if counted and first_wrong < 0:
                first_wrong = number - len(found) + 1
            wrong += counted
            found.clear()
    return wrong, first_wrong


def be_late(chance: random.Random) -> None:
    """Delays this rank's process, or what is queued on its GPU from here on."""
    seconds = chance.random() * LATE_SECONDS
    if torch.cuda.is_available() and chance.random() < 0.5:
        torch.cuda._sleep(int(seconds * CYCLES_PER_SECOND))  # type: ignore[no-untyped-call]
    else:
        time.sleep(seconds)


def here() -> torch.device:
    """The device of this rank."""
    on_gpu = torch.cuda.is_available()
    return torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")


def pattern(rank: int, number: int, shape: tuple[int, ...], dtype: torch.dtype, at: torch.device) -> torch.Tensor:
    """A rank's input of a call: whole numbers up to 250, which every dtype of the kit holds exactly."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count, device=at) * 7 + rank * 31 + number * 101) % 251).to(dtype).view(shape)


def unequal(found: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """The number of elements that differ."""
    assert found.shape == expected.shape, (found.shape, expected.shape)
    return (found != expected).sum()


def apart(found: torch.Tensor, expected: torch.Tensor, room: torch.Tensor | float) -> torch.Tensor:
    """The number of elements that are NaN, or differ from `expected` by more than `room`. expected: finite, float64."""
    assert found.shape == expected.shape, (found.shape, expected.shape)
    return (found - expected).abs_().le(room).logical_not_().sum()
