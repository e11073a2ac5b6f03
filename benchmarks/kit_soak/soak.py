"""Calls of one block of the kit on this rank, all of them compared, while ranks come late at random."""

import random
import time
from collections.abc import Callable

import torch

from sandbox.kit import symm
from sandbox.kit.symmetric_memory.team import Team

LATE_SHARE, LATE_SECONDS = 0.05, 500e-6
"""So often a rank comes late to a call, by up to so much, or its GPU does."""
LOOK_EVERY = 64
"""Calls between two looks at what was wrong: a look waits for the device."""
CYCLES_PER_SECOND = 1_500_000_000
"""About a GPU's, for torch.cuda._sleep; how long a delay lasts exactly is of no account."""

CONFIGURATIONS, VARIANTS = 8, 5
"""Drawn for one order: sizes and roots, and values for each. Five calls with the same sizes have five different values, so that a
value of one of the last four calls shows."""

Call = Callable[[], torch.Tensor]
"""Makes a call with what was drawn, and compares all of its result on the device. Returns how many elements are wrong: 0-dim
int64. May be repeated. Collective."""
Block = Callable[[Team, int, random.Random], Call]
"""(team, number of the values, chance) -> a call. Draws its inputs and the result that it must have, which takes several times as
long as the call. The chance is the same on all ranks, so they agree on sizes and roots."""


def soak(block: Block, first: int, calls: int, seed: int) -> tuple[int, int]:
    """Calls number `first` to `first + calls` of a block on all ranks, all of them compared (collective).

    seed: the same on all ranks. Returns (wrong elements in all of them on this rank, the number of a call that was wrong or of
    one up to LOOK_EVERY calls before it; -1: none was).
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
    """Where this rank computes."""
    on_gpu = torch.cuda.is_available()
    return torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")


def pattern(rank: int, number: int, shape: tuple[int, ...], dtype: torch.dtype, at: torch.device) -> torch.Tensor:
    """What a rank contributes to a call: whole numbers up to 250, which every dtype of the kit holds exactly."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count, device=at) * 7 + rank * 31 + number * 101) % 251).to(dtype).view(shape)


def unequal(found: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """How many elements differ."""
    assert found.shape == expected.shape, (found.shape, expected.shape)
    return (found != expected).sum()


def apart(found: torch.Tensor, expected: torch.Tensor, room: torch.Tensor | float) -> torch.Tensor:
    """How many elements differ from the finite ones of `expected`, float64, by more than `room`, or are no numbers."""
    assert found.shape == expected.shape, (found.shape, expected.shape)
    return (found - expected).abs_().le(room).logical_not_().sum()
