"""Measurement: time from a save of a CUDA kernel to its verdicts on all visible GPUs, over the kit's memory and each backend."""

from arena.records.run_record import view
from arena.runs.judge import RunRequest
from arena.setting_choice import Choice
from arena.workspace.named_kernels import starter
from benchmarks.figure import Figure
from benchmarks.kernels import kernel_paths
from benchmarks.rows import request_of
from benchmarks.save_to_verdict import saves
from sandbox.machine.backends import BACKENDS

REPETITIONS = 10
KERNEL = "allreduce_two_shot_cuda"


async def measure(repetitions: int | None) -> list[Figure]:
    """Measures problem 1, production. Every save changes the file, so every rank compiles the kernel anew.

    A backend that this machine lacks has no figures. The kernel of each backend is the starter of `new --template`.

    Raises:
        MachineError: there is no GPU, a run did not pass, or no verdict arrived.
    """
    choice = Choice(preset="production", device="cuda")
    request = request_of("1", choice, f"{KERNEL}.py", kernel_paths()[KERNEL].read_text(encoding="utf-8"))
    figures = await saves(request, repetitions or REPETITIONS, (1.0, 2.5))
    for backend in BACKENDS:
        if not backend.availability().advice:
            over = view(RunRequest, request, source=starter(request.problem, backend.name))
            figures += await saves(over, repetitions or REPETITIONS, (1.5, 2.5), f", {backend.name}")
    return figures
