"""Microseconds that a call costs the host and the device, for baselines, house kernels and kernels in files.

    python -m torch.distributed.run --nproc-per-node 2 benchmarks/2xH100/host_time.py [--preset P] 13 1 1:FILE

Batches of calls on fresh inputs are queued while the device is busy with a delay. Host time ends when all calls are
queued. Device time is from the start of the first call to the end of the last one; it is right only if the delay is
longer than the queueing. Medians of the first rank.
"""

import argparse
import os
import statistics
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from problems.catalogue import load_catalogue
from sandbox.rank.problem_code import ProblemCode

CALLS, ROUNDS, DELAY_CYCLES = 24, 9, 12_000_000
ON_GPU = torch.cuda.is_available()


def finish() -> None:
    """Waits until all ranks have finished their work."""
    if ON_GPU:
        torch.cuda.synchronize()
    dist.barrier()
    if ON_GPU:
        torch.cuda.synchronize()


def event() -> torch.cuda.Event:
    """An event that records its time."""
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def measured(solution: Callable[..., Any], inputs: list[tuple[Any, ...]]) -> str:
    """Medians of the batches. Results are kept until the end of their batch, as the judge keeps them."""
    host, device = [], []
    for number in range(ROUNDS + 2):  # the first two warm up
        finish()
        begin, end = (event() if ON_GPU else None for _ in range(2))
        if begin is not None:
            torch.cuda._sleep(DELAY_CYCLES)  # type: ignore[no-untyped-call]
            dist.all_reduce(torch.zeros(1, device="cuda"))  # waits until all ranks' delays are over
            begin.record()
        started = time.perf_counter_ns()
        kept = [solution(*each) for each in inputs]
        took = (time.perf_counter_ns() - started) / 1e3 / len(inputs)
        if begin is not None and end is not None:
            end.record()
            torch.cuda.synchronize()
            device.append(begin.elapsed_time(end) * 1e3 / len(inputs))
        del kept
        if number >= 2:
            host.append(took)
    on_device = f"{statistics.median(device):8.1f}" if device else "       –"
    return f"{statistics.median(host):8.1f} {on_device}"


def module_of(text: str, name: str) -> Callable[..., Any]:
    """The solution of a kernel's text."""
    module = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
    solution: Callable[..., Any] = module.solution
    return solution


def main() -> None:
    """Prints a line for each kernel of the named problems."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", default="paper")
    parser.add_argument("kernels", nargs="+", help="a problem's number, or number:file")
    asked = parser.parse_args()
    rank = int(os.environ["RANK"])
    device = torch.device("cuda", rank) if ON_GPU else torch.device("cpu")
    if ON_GPU:
        torch.cuda.set_device(rank)
        dist.init_process_group("nccl", device_id=device)
    else:
        dist.init_process_group("gloo")
    if rank == 0:
        print(f"{'problem':10} {'kernel':44} {'host us':>8} {'device':>8}")
    for name in asked.kernels:
        number, _, file = name.partition(":")
        problem = load_catalogue().find(number)
        code = ProblemCode(problem)
        setting = code.setting(dict(problem.presets[asked.preset]), asked.preset, torch.bfloat16, device)
        inputs = [code.arguments(code.draw(setting, 1 + n), setting) for n in range(CALLS)]
        kernels = {"baseline": code.baseline}
        if problem.house_source:
            kernels["house"] = module_of(problem.house_source, "house")
        if file:
            kernels = {file: module_of(Path(file).read_text(), "kernel")}
        for kernel, solution in kernels.items():
            line = measured(solution, inputs)
            if rank == 0:
                print(f"{number:10} {kernel[-44:]:44} {line}", flush=True)
    dist.destroy_process_group()


main()
