"""Symmetric memory: one heap per rank that all ranks map, so that a rank accesses its peers' buffers directly.

    from sandbox.kit import symm

    def solution(x):                       # all-reduce: every rank reads all tensors
        mine = symm.stage(x)               # copy x to where peers can see it
        symm.barrier()
        total = torch.zeros_like(x, dtype=torch.float32)
        for peer in symm.peers(mine):
            total += peer
        return total.to(x.dtype)

Attributes: `rank`, `world`, `px` (for compiled kernels), `ranks`. Functions: `empty`, `stage`, `out`,
`peers`, `ptrs`, `order`, `barrier`, `signal`, `wait`, `next_epoch`, `sub`. The first use maps the heap and is
collective.

One barrier per call, or two? A buffer that peers read must not be overwritten while a slow peer still reads.
Two barriers per call (before reading, and before the next writing) are always right. With two buffers used in
turn, one is enough: a rank writes the buffer of call e again in call e+2, and to get there it passed the
barrier of call e+1, which every peer enters only after it has finished reading in call e. `stage` and `out`
take turns for you; `empty` does not. This holds for ONE barrier in every call, taken after all writing and
before all reading, by all members.

Epochs. A barrier inside a compiled kernel compares numbers that only grow: take one with `next_epoch()` per
call and use another slot for each barrier of that call. They are never reset; comparison is by signed
difference, so wrapping around is fine.

On CPU ranks the heap is shared memory (PKB_SYMM_BYTES per rank, default 1 GiB, only touched pages count). With the
NCCL backend it is on the ranks' GPUs, in cuMem memory; barriers and signals are then kernels on the current stream,
which trap after their time limit.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from sandbox.kit.errors import SymmetricMemoryError
from sandbox.kit.layout import ALIGN, MAX_WORLD, Px
from sandbox.kit.symmetric_memory.heap import heap_bytes, host_heap
from sandbox.kit.symmetric_memory.heap import reserve as _reserve
from sandbox.kit.symmetric_memory.host_signals import host_signals
from sandbox.kit.symmetric_memory.team import Shape, Team

rank: int
"""This rank, from 0 to world - 1."""
world: int
"""The number of ranks."""
ranks: tuple[int, ...]
"""All ranks, in ascending order."""
px: Px
"""The addresses of all heaps and signal pads, for compiled kernels that take a `Px`."""

_world_team: Team | None = None


def connect(timeout_s: float = 10.0) -> Team:
    """The world's team. Maps the heap at the first call, which is collective.

    Kernels need not call it. Raises SymmetricMemoryError without a process group, BarrierTimeout if a rank
    does not call it.
    """
    global _world_team, rank, world, ranks, px
    if _world_team is None:
        _world_team = team = _connect(timeout_s)
        # Plain attributes from here on: a kernel reads them in every call.
        rank, world, ranks, px = team.rank, team.world, team.ranks, team.px
    return _world_team


def _connect(timeout_s: float) -> Team:
    if not dist.is_available() or not dist.is_initialized():
        raise SymmetricMemoryError(
            "symm needs torch.distributed to be initialised; pkb-arena does that before it loads a kernel"
        )
    me, size = dist.get_rank(), dist.get_world_size()
    if size > MAX_WORLD:
        raise SymmetricMemoryError(f"symm serves worlds of up to {MAX_WORLD} ranks, this one has {size}")
    store = dist.distributed_c10d._get_default_store()
    host = host_signals()
    on_gpu = "nccl" in dist.get_backend_config()
    mapped = host_heap(me, size, store, ALIGN if on_gpu else heap_bytes(in_file=True), timeout_s)
    if not on_gpu:
        team = Team(mapped, mapped, host, range(size))
        team.barrier(timeout_s)
        return team
    from sandbox.kit.symmetric_memory.device_heap import DeviceSignals, device_heap

    heap = device_heap(me, size, heap_bytes(), store, timeout_s)
    team = Team(mapped, heap, DeviceSignals(), range(size), host)
    team.host_barrier(timeout_s)
    return team


def __getattr__(name: str) -> Any:
    if name in ("rank", "world", "ranks", "px"):
        return getattr(connect(), name)
    raise AttributeError(f"symm has no {name}")


def reserve(nbytes: int) -> None:
    """Requests a heap of at least `nbytes` per rank on GPUs, instead of 1 GiB. Call it at import, equally on all ranks.

    Raises SymmetricMemoryError if the heap is mapped already, and smaller.
    """
    if _world_team is not None and "nccl" in dist.get_backend_config() and heap_bytes() < nbytes:
        raise SymmetricMemoryError("symm.reserve comes too late: call it before the first use of symmetric memory")
    _reserve(nbytes)


def team(group: dist.ProcessGroup | None = None) -> Team:
    """The team of a problem's `group` argument; None: the world's. Collective among its ranks the first time."""
    return connect() if group is None or group is dist.group.WORLD else connect().sub(group)


def order() -> list[int]:
    """All ranks, starting with this one: me, me+1, ..."""
    return connect().order()


def empty(shape: Shape, dtype: torch.dtype, tag: str | None = None) -> torch.Tensor:
    """A symmetric buffer, cached by (shape, dtype, tag); see `Team.empty`."""
    return connect().empty(shape, dtype, tag)


def stage(x: torch.Tensor, tag: str | None = None) -> torch.Tensor:
    """A copy of x that peers can read, in one of two buffers used in turn."""
    return connect().stage(x, tag)


def out(shape: Shape, dtype: torch.dtype, tag: str | None = None, ring: int | None = None) -> torch.Tensor:
    """The next buffer of a ring, for results that peers write into; may be returned from solution()."""
    return connect().out(shape, dtype, tag, ring)


def room(count: int, dtype: torch.dtype, tag: str | None = None, ring: int | None = 2) -> torch.Tensor:
    """`out` for results whose size changes from call to call; see `Team.room`."""
    return connect().room(count, dtype, tag, ring)


def peers(t: torch.Tensor) -> list[torch.Tensor]:
    """The same symmetric tensor in every rank's memory, this rank's included, indexed by rank."""
    return connect().peers(t)


def ptrs(t: torch.Tensor) -> list[int]:
    """The addresses of `peers(t)` in this process."""
    return connect().ptrs(t)


def gather_numbers(*numbers: int) -> list[tuple[int, ...]]:
    """The integers of all ranks, such as lengths, by rank. They are exchanged on the host."""
    return connect().gather_numbers(*numbers)


def next_epoch() -> int:
    """The next number for barriers and signals in a compiled kernel. All ranks must take equally many."""
    return connect().next_epoch()


def barrier(timeout_s: float = 10.0) -> None:
    """Waits for all ranks. What they wrote before is visible afterwards.

    Raises BarrierTimeout with the missing ranks.
    """
    connect().barrier(timeout_s)


def signal(peer: int, slot: int, value: int) -> None:
    """Sends a peer a growing number in a slot (0..1007). Earlier writes are visible to it after its `wait`."""
    connect().signal(peer, slot, value)


def wait(peer: int, slot: int, value: int, timeout_s: float = 10.0) -> None:
    """Waits until a peer has signalled `value` or a later one in a slot. Raises BarrierTimeout."""
    connect().wait(peer, slot, value, timeout_s)


def sub(group: Sequence[int] | dist.ProcessGroup) -> Team:
    """The same functions for some of the ranks, with their own slots and epochs."""
    return connect().sub(group)
