"""Measurement: time from a save of a CUDA kernel, written with the kit, to its verdicts on all visible GPUs."""

from pathlib import Path

import sandbox
from arena.paths import Paths
from arena.runs.run_request import RunRequest
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from benchmarks.figure import Figure
from benchmarks.save_to_verdict import saves
from problems.catalogue import load_catalogue

REPETITIONS = 10
KERNEL = Path(sandbox.__path__[0]) / "kit" / "examples" / "allreduce_two_shot_cuda.py"


async def measure(paths: Paths, repetitions: int | None) -> list[Figure]:
    """Problem 1, production: every save changes the file, so every rank compiles the kernel anew.

    Raises:
        MachineError: there is no GPU, a run did not pass, or nothing came.
    """
    problem = load_catalogue().find("1")
    request = RunRequest(
        problem=problem,
        setting=choose_setting(problem, Choice(preset="production", device="cuda"), Settings()),
        kernel_name=KERNEL.name,
        source=KERNEL.read_text(encoding="utf-8"),
    )
    return await saves(request, repetitions or REPETITIONS, (1.0, 2.5))
