"""Functions of ranks that share one GPU by time slices: house kernels against the oracle, the kit's soak test, stamps.

NCCL refuses two ranks on one GPU. The kit does not need NCCL: its heap is memory passed as descriptors, and its signals
are words in that memory. So the ranks have a gloo process group, whose collectives of CPU tensors serve the oracle. The
kit is told that they are ranks on GPUs. A torch.distributed collective on a GPU tensor is refused and named.
"""

import collections
import functools
import itertools
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import house_agreement
import torch
import torch.distributed as dist

from benchmarks.kit_soak import block_named
from benchmarks.kit_soak.soak import soak
from problems.specification import load_problem
from sandbox.kit import cuda, symm
from sandbox.kit.blocks import quantisation
from sandbox.kit.compilers import nvrtc, stamps
from sandbox.memory.trees import flatten, unflatten
from sandbox.rank.kernel_module import load_solution
from sandbox.rank.problem_code import ProblemCode

WAIT_MS, CONNECT_S = 20_000, 40.0
"""Time limits of waits for peers in a launch (ms) and for other ranks' heaps (s): long, because ranks take turns."""
CALLS = 5
"""Calls in a row without synchronisation between them: enough to use alternating buffers twice."""
LATE_S = 0.005
DTYPES = ("float32", "bfloat16")
COLLECTIVES = (
    "all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_to_all", "all_to_all_single", "barrier",
    "batch_isend_irecv", "broadcast", "gather", "irecv", "isend", "recv", "reduce", "reduce_scatter",
    "reduce_scatter_tensor", "scatter", "send",
)  # fmt: skip


class NeedsNccl(Exception):
    """A kernel called a torch.distributed collective on a GPU tensor. The text is the collective's name."""


def prepare(device: str) -> torch.device:
    """Prepares this rank for GPU 0, or leaves it a CPU rank. device: "cuda" or "cpu"."""
    if device == "cpu":
        return torch.device("cpu")
    torch.cuda.set_device(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    nvrtc.OPTIONS = (*nvrtc.OPTIONS, f"-DPX_TIMEOUT_MS={WAIT_MS}")
    dist.get_backend_config = lambda group=None: "cpu:gloo,cuda:nccl"
    for name in COLLECTIVES:
        refusing = _refusing(name, getattr(dist, name))
        setattr(dist, name, refusing)
        setattr(dist.distributed_c10d, name, refusing)
    at = torch.device("cuda", torch.cuda.current_device())
    torch.zeros(1, device=at)
    torch.cuda.synchronize()  # creates the context before other ranks wait for this one
    return at


def _refusing(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*arguments: Any, **named: Any) -> Any:
        if name == "barrier" or any(_is_on_gpu(each) for each in (*arguments, *named.values())):
            raise NeedsNccl(name)
        return original(*arguments, **named)

    return call


def _is_on_gpu(value: Any) -> bool:
    if isinstance(value, dist.P2POp):
        value = value.tensor
    if isinstance(value, list | tuple):
        return any(_is_on_gpu(each) for each in value)
    return isinstance(value, torch.Tensor) and value.is_cuda


def barrier() -> None:
    """Waits for all processes of the world, without a GPU."""
    dist.all_reduce(torch.zeros(1))


# --- house kernels ---------------------------------------------------------------------------------------------------------


def agreement(rank: int, world: int, problem_folder: str, source: str, device: str) -> dict[str, Any]:
    """Compares a kernel with the oracle, at tiny and at odd sizes.

    source: the kernel's text. Returns compared: number of outputs; worst: their largest error as a multiple of the
    allowed error; faults: what was wrong; refused: number of calls that ended at a collective, by its name.
    """
    at = prepare(device)
    quantisation.divides_by_product = lambda device: False  # the oracle's tensors are on the CPU, where torch divides
    problem = load_problem(Path(problem_folder))
    code = ProblemCode(problem)
    path = Path(tempfile.mkdtemp(dir=os.environ["PKB_KERNEL_CACHE"])) / "house.py"
    solution = load_solution(source, str(path), problem.parameters)
    if at.type == "cuda":
        symm.connect(CONNECT_S)
    return compared(rank, world, code, solution, at)


def compared(
    rank: int, world: int, code: ProblemCode, solution: Callable[..., Any], at: torch.device
) -> dict[str, Any]:
    """See `agreement`."""
    problem = code.problem
    errors: list[float] = []
    faults: list[str] = []
    refused: collections.Counter[str] = collections.Counter()
    dtypes = [dtype for dtype in DTYPES if dtype in problem.dtypes] or problem.dtypes
    for sizes, dtype in itertools.product(({}, house_agreement.sizes_of(problem)[0]), dtypes):
        setting = code.setting(problem.sizes("tiny", sizes), "tiny", dtype, torch.device("cpu"))
        drawn = [code.draw(setting, seed) for seed in range(CALLS)]
        given = [{name: t.to(at, copy=True) for name, t in tensors.items()} for tensors in drawn]
        facts = [code.facts(tensors, setting) for tensors in drawn]
        wanted = [house_agreement.wanted_leaves(code, tensors, setting, facts[n]) for n, tensors in enumerate(drawn)]
        barrier()
        try:
            calls = _in_a_row(code, solution, given, setting.replace(device=at), rank, world)
        except Exception as error:
            error.add_note(f"in the calls of {sizes or 'tiny'} {dtype}")
            raise
        for seed, call in enumerate(calls):
            where = f"{sizes or 'tiny'} {dtype} call {seed} rank {rank}"
            if isinstance(call, str):
                refused[call] += 1
                continue
            structure, leaves, later = call
            if later and not all(map(house_agreement.same, leaves, later)):
                faults.append(f"{where}: its result has changed before the next call")
            result = code.canonical(unflatten(structure, leaves), setting, facts[seed])
            got = house_agreement.real_leaves(result)
            if len(got) != len(wanted[seed]):
                faults.append(f"{where}: {len(got)} outputs, not {len(wanted[seed])}")
                continue
            for (name, g), (_, w) in zip(got, wanted[seed], strict=True):
                errors.append(house_agreement.off(problem, dtype, g, w))
                if not errors[-1] <= 1.0:
                    faults.append(f"{where}: {name} is off by {errors[-1]:.3g} of what is allowed{_first(g, w)}")
            for name, tensor in given[seed].items():
                if not house_agreement.same(tensor.cpu(), drawn[seed][name]):
                    faults.append(f"{where}: it wrote to its argument {name}")
    worst = max((error for error in errors if error == error), default=0.0)
    return {"compared": len(errors), "worst": worst, "faults": faults, "refused": dict(refused)}


Call = str | tuple[str, list[torch.Tensor], list[torch.Tensor]]
"""The collective that ended a call; or its structure, its outputs, and the outputs read again before the next call."""


def _in_a_row(code: ProblemCode, solution: Any, given: list[Any], setting: Any, rank: int, world: int) -> list[Call]:
    """Makes calls without synchronisation. In turn each rank is late, so its peers run ahead as far as they can."""
    found: list[Any] = []
    alive: list[torch.Tensor] = []
    """Outputs of the call before."""
    for seed, tensors in enumerate(given):
        if seed % world == rank:
            time.sleep(LATE_S)
        if alive:
            found[-1][2].extend(leaf.clone() for leaf in alive)
        try:
            structure, leaves = flatten(code.call(solution, tensors, setting))
        except NeedsNccl as needed:
            found.append(str(needed))
            alive = []
        else:
            alive = [leaf for _, leaf in leaves]
            found.append((structure, [leaf.clone() for leaf in alive], []))
    if setting.device.type == "cuda":
        torch.cuda.synchronize()
    barrier()
    return [
        call if isinstance(call, str) else (call[0], [leaf.cpu() for leaf in call[1]], [leaf.cpu() for leaf in call[2]])
        for call in found
    ]


def _first(got: torch.Tensor, wanted: torch.Tensor) -> str:
    """Says in words how many elements differ by more than rounding, and the first of them."""
    if got.shape != wanted.shape:
        return f": shape {list(got.shape)}, not {list(wanted.shape)}"
    apart = ~torch.isclose(got.double(), wanted.double(), rtol=0.05, atol=1e-3, equal_nan=True)
    places = apart.nonzero()
    if not len(places):
        return ""
    at = tuple(places[0].tolist())
    first = f"{list(at)} is {got[at].item():.6g}, not {wanted[at].item():.6g}"
    return f": {len(places)} of {got.numel()} elements differ, the first {first}"


# --- the kit's blocks ------------------------------------------------------------------------------------------------------

CHUNK = 50
"""Calls between two reads of the clock."""


def soaked(rank: int, world: int, block: str, device: str, seconds: float, seed: int) -> list[int]:
    """Calls a block of the kit for `seconds`. Returns [calls, wrong elements, `soak`'s first wrong call]."""
    if prepare(device).type == "cuda":
        symm.connect(CONNECT_S)
    calls, wrong, first_wrong = 0, 0, -1
    started = time.monotonic()
    over = torch.zeros(1)
    while not over:
        found, first = soak(block_named(block), calls, CHUNK, seed + calls)
        calls, wrong = calls + CHUNK, wrong + found
        first_wrong = first if first_wrong < 0 else first_wrong
        over = torch.tensor([float(time.monotonic() - started > seconds)])
        dist.all_reduce(over, op=dist.ReduceOp.MAX)  # all ranks end after the same call
    return [calls, wrong, first_wrong]


# --- stamps ----------------------------------------------------------------------------------------------------------------

STAMPED = r"""
extern "C" __global__ void waits_ns(i64 ns) {
    if (threadIdx.x) return;
    px_stamp(0);
    const u64 start = px_now_ns();
    while (px_now_ns() - start < (u64)ns) {}
    px_stamp(1);
}
extern "C" __global__ void waits_cycles(i64 cycles) {
    if (threadIdx.x) return;
    px_stamp(2);
    const i64 start = clock64();
    while (clock64() - start < cycles) {}
    px_stamp(3);
}
extern "C" __global__ void every_block(u32 first) {
    if (threadIdx.x == 0) px_stamp(first + blockIdx.x);
}
extern "C" __global__ void barriers(Px px, u32 slot, u32 epoch) {
    if (threadIdx.x == 0) px_stamp(4);
    px_barrier(px, slot, epoch);
    if (threadIdx.x == 0) px_stamp(5);
}
"""
GUARD, GUARD_WORD = 4096, -77
TIMES = 10
WAIT_NS, CYCLES = 200_000, 2_000_000
BARRIERS = 20


def _stamped_module(at: torch.device) -> tuple[Any, torch.Tensor]:
    """STAMPED's kernels, and the memory of their ring, followed by guard words that no kernel may write."""
    stamps.begin(at)
    ring = stamps._rings[0]
    memory = torch.cat([ring, torch.full((GUARD,), GUARD_WORD, dtype=torch.int64, device=at)])
    stamps._rings[0] = memory[: ring.numel()]
    return cuda.compile(STAMPED), memory


def stamps_of_one(rank: int, world: int) -> dict[str, Any]:
    """Records stamps on a single rank, for several cases: lists of [ns, block, number], sorted by time."""
    at = prepare("cuda")
    module, memory = _stamped_module(at)
    found: dict[str, Any] = {}

    def taken() -> list[list[int]]:
        return sorted(map(list, stamps.taken()))

    module.waits_ns[1, 32](1000)
    found["before take"] = taken()
    stamps.take()
    module.waits_ns[1, 32](1000)
    taken()
    found["waits_ns"] = []
    for _ in range(TIMES):
        module.waits_ns[1, 32](WAIT_NS)
        found["waits_ns"].append(taken())
    found["waits_cycles"] = []
    for _ in range(TIMES):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(CYCLES)  # keeps the GPU busy until the rest is queued
        first.record()
        module.waits_cycles[1, 32](CYCLES)
        last.record()
        stamped = taken()
        found["waits_cycles"].append([first.elapsed_time(last) * 1e6, stamped])
    launch = cuda.compile(stamps.CLOCK).px_gpu_clock[1, 1]
    offset, unsure = stamps.clock(launch, at)
    begun = time.time_ns()
    module.waits_ns[1, 32](WAIT_NS)
    stamped = taken()
    found["on the host's clock"] = [begun, [ns + offset for ns, _, _ in stamped], time.time_ns(), unsure]
    module.every_block[stamps.ROOM + 1000, 32](7)
    found["overflow"] = taken()
    found["behind the ring"] = memory[-GUARD:].tolist()
    module.every_block[3, 32](1)
    found["after overflow"] = taken()
    return found


def stamps_of_barriers(rank: int, world: int) -> list[list[list[int]]]:
    """For each barrier of all ranks: [ns, block, number] of this rank's stamps before and after it."""
    module, _ = _stamped_module(prepare("cuda"))
    team = symm.connect(CONNECT_S)
    stamps.take()
    found = []
    for number in range(BARRIERS):
        if number % world == rank:
            time.sleep(LATE_S)
        module.barriers[1, 32](team.px, 5, team.next_epoch())
        found.append(sorted(map(list, stamps.taken())))
    return found
