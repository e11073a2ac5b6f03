"""The workers of a sweep. A worker is a judge on a machine, such as this machine's engine."""

from dataclasses import dataclass

from arena.errors import MachineError, RefereeFailed, RunCancelled
from arena.machine.fingerprint import Machine
from arena.runs.judge import Judge, Judgement, judge_to_end
from arena.runs.run_request import RunRequest
from sandbox.protocol.verdict import Verdict

TRIES = 3
"""Tries of a run that ends in a harness error."""


@dataclass(frozen=True)
class Worker:
    """One judge. It takes one run at a time."""

    name: str
    judge: Judge
    machine: Machine


class WorkerLost(MachineError):
    """A worker has failed for good. Others may go on."""


async def judge_at(worker: Worker, request: RunRequest) -> tuple[Judgement, int]:
    """Judges a request, and repeats it if the harness fails. Returns the judgement and the number of tries.

    Raises:
        RunRefused: the setting cannot be run.
        WorkerLost: the last try ended without a judgement.
        MachineError: this machine's files or devices prevent it.
    """
    for tries in range(1, TRIES + 1):
        try:
            judgement = await judge_to_end(worker.judge, request)
        except (RefereeFailed, RunCancelled) as error:
            if tries == TRIES:
                raise WorkerLost(f"{worker.name} judges no more: {error.message}", error.advice) from None
            continue
        if judgement.result.verdict is not Verdict.HARNESS_ERROR:
            break
    return judgement, tries
