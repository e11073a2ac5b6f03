"""Measures, call by call, whether a baseline is slower on inputs that its process has not seen yet.

    python -m torch.distributed.run --nproc-per-node 2 benchmarks/2xH100/fresh_inputs.py FOLDER 31 32 13

For each problem, in turn: 50 calls on one input, 30 batches on fresh inputs, the same batches again, 30 batches on
other fresh inputs. One line per batch: milliseconds per call (slowest rank), device allocations so far, MiB reserved.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from problems.catalogue import load_catalogue
from sandbox.rank.problem_code import ProblemCode

CALLS, BATCHES = 16, 30


def main() -> None:
    """Measures all named problems."""
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    catalogue = load_catalogue()
    for name in sys.argv[2:]:
        problem = catalogue.find(name)
        code = ProblemCode(problem)
        sizes = problem.presets["paper"]
        setting = code.setting(dict(sizes), "paper", torch.bfloat16, torch.device("cuda", rank))
        sets = {
            kind: [code.arguments(code.draw(setting, first + n), setting) for n in range(CALLS * BATCHES)]
            for kind, first in (("fresh", 1), ("other", 10_000))
        }
        warm = code.arguments(code.draw(setting, 77_777), setting)
        with open(Path(sys.argv[1]) / f"fresh-{name}-{rank}.txt", "w") as out:
            for _ in range(3):
                for _ in range(50):
                    code.baseline(*warm)
                torch.cuda.synchronize()
            for kind, inputs in (
                ("fresh", sets["fresh"]),
                ("again", sets["fresh"]),
                ("other", sets["other"]),
                ("other again", sets["other"]),
            ):
                for batch in range(BATCHES):
                    code.baseline(*warm)
                    torch.cuda.synchronize()
                    dist.barrier()
                    torch.cuda.synchronize()
                    times = []
                    started = time.perf_counter()
                    for each in inputs[batch * CALLS : (batch + 1) * CALLS]:
                        before = time.perf_counter()
                        code.baseline(*each)
                        times.append(1e3 * (time.perf_counter() - before))
                    torch.cuda.synchronize()
                    took = (time.perf_counter() - started) * 1e3 / CALLS
                    slowest = torch.tensor(took, device="cuda")
                    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
                    stats = torch.cuda.memory_stats()
                    line = (
                        f"{name} {kind} {batch} {slowest.item():.3f} ms, slowest call {max(times):.2f}, device "
                        f"allocations {stats.get('num_device_alloc')}, {stats['reserved_bytes.all.current'] >> 20} MiB"
                    )
                    out.write(line + "\n")
                    if rank == 0 and batch in (0, 1, 2, 4, 8, 12, 16, 20, 24, 29):
                        print(line, flush=True)
    dist.destroy_process_group()


main()
