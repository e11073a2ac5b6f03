"""The seats of a campaign: a seat is a judge with a machine; locally this machine's engine."""

from collections.abc import Sequence
from dataclasses import dataclass

from arena.errors import MachineError, RefereeFailed, RunCancelled
from arena.machine.fingerprint import Machine
from arena.runs.judge import Judge, Judgement, judge_to_end
from arena.runs.run_request import RunRequest
from sandbox.protocol.verdict import Verdict

TRIES = 3
"""A run that ends in a harness error is made so often before the error is its result."""


@dataclass(frozen=True)
class Seat:
    """One judge. It takes one run at a time."""

    name: str
    judge: Judge
    machine: Machine


class SeatLost(MachineError):
    """A seat can judge nothing any more; others may."""


async def judge_at(seat: Seat, request: RunRequest) -> tuple[Judgement, int]:
    """Judges a request, again where the harness failed. Returns the judgement and the number of tries.

    Raises:
        RunRefused: the setting cannot be run.
        SeatLost: the seat does not come back.
        MachineError: this machine's files or devices prevent it.
    """
    for tries in range(1, TRIES + 1):
        try:
            judgement = await judge_to_end(seat.judge, request)
        except (RefereeFailed, RunCancelled) as error:
            if tries == TRIES:
                raise SeatLost(f"{seat.name} judges no more: {error.message}", error.advice) from None
            continue
        if judgement.result.verdict is not Verdict.HARNESS_ERROR:
            break
    return judgement, tries


def fingerprints(seats: Sequence[Seat]) -> list[str]:
    """Of all seats, each once."""
    return list(dict.fromkeys(seat.machine.digest for seat in seats))


def machines(seats: Sequence[Seat]) -> list[Machine]:
    """Of all seats, each once."""
    return list(dict.fromkeys(seat.machine for seat in seats))
