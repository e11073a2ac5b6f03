'''NVSHMEM: its symmetric memory, and kernels with its device functions.

    from sandbox.kit import cuda, shmem

    mod = cuda.compile(r"""
    extern "C" __global__ void add_all(Px px, const bf16* staged, bf16* y, i64 n, u32 epoch) {
        px_barrier(px, blockIdx.x, epoch);
        for (i64 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
            float sum = 0;
            for (int p = 0; p < px.world; ++p) sum += to_float(px_at(px, p, staged)[i]);
            y[i] = from_float<bf16>(sum);
        }
    }
    """)
    staged = shmem.stage(x)
    mod.add_all[64, 256](shmem.px, staged, y, y.numel(), shmem.next_epoch())

Start with pointers, as above: between GPUs of one machine nvshmem_ptr gives every PE's memory as an address to load from and
store to, and px.cuh does the rest. `shmem.px` holds these addresses, `shmem.ptr(t, peer)` is one of them. All functions of
`symm` are here, too, on NVSHMEM's memory: `empty`, `stage`, `out`, `room`, `peers`, `ptrs`, `order`, `barrier`, `signal`, `wait`,
`next_epoch`, `gather_numbers`, `sub`, and `rank`, `world`, `ranks`, `px`.

    mod = shmem.compile(r"""
    extern "C" __global__ void push(const float* x, float* y, u64* here, i64 bytes, u64 turn) {
        const int me = nvshmem_my_pe(), peer = 1 - me;
        nvshmemx_putmem_signal_block(y, x, bytes, here, turn, NVSHMEM_SIGNAL_SET, peer);
        if (threadIdx.x == 0) nvshmem_signal_wait_until(here, NVSHMEM_CMP_GE, turn);
    }
    """)

`compile` is cuda.compile with NVSHMEM's device functions by their own names: nvshmem_my_pe, n_pes, ptr, fence, quiet,
nvshmem[x]_putmem, getmem, putmem_signal (each also _nbi; of a thread, _warp or _block), nvshmemx_signal_op, nvshmem_signal_fetch,
nvshmem_signal_wait_until, nvshmem[x]_barrier_all and sync_all. Typed functions (nvshmem_float_put), atomics and collectives are
not there. A wait for a signal traps after 2 s; a barrier has no limit: launch it in one block, on every rank.

The first use initialises NVSHMEM and is collective. Memory: PKB_SYMM_BYTES per rank (1 GiB), and 64 MiB for what a kernel
takes with `library().allocate`. Nothing is finalised: a world ends by being killed, and the driver frees its memory.

Triton kernels with NVSHMEM's functions need this module's initialisation, shmem.connect(), and no other: @requires_nvshmem over
@triton.jit (torch.distributed._symmetric_memory._nvshmem_triton). A first compilation takes seconds. Wait for a
signal_op with signal_wait_until, not with wait_until.

torch's symmetric memory with backend NVSHMEM works only without this module, because a process is initialised once.
Call symm_mem.set_backend("NVSHMEM") before the first symm_mem.empty, then torch.ops.symm_mem.nvshmem_put(tensor, peer)
and others. In torch 2.11 handle.barrier(), put_signal() and wait_signal() of this backend do nothing. The first
allocation, and the garbage collection of a tensor, are collective.
'''

import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from sandbox.kit import cuda
from sandbox.kit.compilers import build, compiling, source_files
from sandbox.kit.errors import BackendError, BarrierTimeout
from sandbox.kit.layout import ALIGN, MAX_WORLD, PADS_BYTES
from sandbox.kit.shmem import link
from sandbox.kit.shmem.bindings import Library
from sandbox.kit.shmem.bindings import library as _library
from sandbox.kit.symmetric_memory.device_heap import DeviceSignals, bytes_at
from sandbox.kit.symmetric_memory.heap import Heap, heap_bytes, host_heap
from sandbox.kit.symmetric_memory.host_signals import host_signals
from sandbox.kit.symmetric_memory.team import Team

_TEAM = (  # noqa: SIM905
    "rank world ranks px empty stage out room peers ptrs order barrier signal wait next_epoch gather_numbers sub"
).split()
"""What this module shares with `symm`, by `Team`'s names."""
_IDENTITY = "pkb-kit/shmem/identity"
_world_team: Team | None = None


def connect(timeout_s: float = 10.0) -> Team:
    """The team of all ranks on NVSHMEM's memory. Initialises NVSHMEM at the first call, which is collective.

    Kernels need not call it. Raises BackendError if NVSHMEM cannot be used, BarrierTimeout if a rank does not call it.
    """
    global _world_team
    if _world_team is None:
        if not dist.is_initialized() or "nccl" not in dist.get_backend_config():
            raise BackendError("shmem needs GPU ranks; on CPU ranks use sandbox.kit.symm")
        size = dist.get_world_size()
        if not 1 < size <= MAX_WORLD:
            raise BackendError(f"shmem serves worlds of 2 to {MAX_WORLD} ranks, this one has {size}")
        with compiling.shown():
            _world_team = _connect(dist.get_rank(), size, timeout_s)
        # Plain attributes from here on: a kernel reads them in every call.
        globals().update({name: getattr(_world_team, name) for name in _TEAM})
    return _world_team


def _connect(me: int, size: int, timeout_s: float) -> Team:
    store = dist.distributed_c10d._get_default_store()
    # NVSHMEM would block forever if a rank is missing. This raises an error that names it.
    mapped = host_heap(me, size, store, ALIGN, timeout_s, "shmem")

    def share(identity: bytes | None) -> bytes:
        if identity is not None:
            store.set(_IDENTITY, identity.hex())
            return identity
        try:
            store.wait([_IDENTITY], timedelta(seconds=timeout_s))
        except RuntimeError:
            raise BarrierTimeout("rank 0 did not initialise NVSHMEM", [0]) from None
        return bytes.fromhex(store.get(_IDENTITY).decode())

    nvshmem, nbytes = _library(), heap_bytes()
    nvshmem.initialise(me, size, PADS_BYTES + nbytes, share)
    block = nvshmem.allocate(PADS_BYTES + nbytes)
    bytes_at(block, PADS_BYTES + nbytes).zero_()
    torch.cuda.synchronize()
    addresses = [nvshmem.address(block, peer) for peer in range(size)]
    heap = Heap(me, [bytes_at(address + PADS_BYTES, nbytes) for address in addresses], addresses)
    team = Team(mapped, heap, DeviceSignals(), range(size), host_signals(), "shmem")
    team.host_barrier(timeout_s)  # all heaps are zero before a peer may write
    return team


def __getattr__(name: str) -> Any:
    if name in _TEAM:
        return getattr(connect(), name)
    raise AttributeError(f"shmem has no {name}")


def ptr(t: torch.Tensor, peer: int) -> int:
    """The address of a peer's part of a symmetric tensor, as nvshmem_ptr gives it."""
    addresses = connect().ptrs(t)
    if not 0 <= peer < len(addresses):
        raise BackendError(f"there is no PE {peer} in a world of {len(addresses)}")
    return addresses[peer]


def library() -> Library:
    """NVSHMEM's host library, initialised. `dll` has its functions; most of them are collective."""
    connect()
    return _library()


def compile(
    source: str | os.PathLike[str], options: Sequence[str] = (), arch: str | None = None
) -> build.CompiledModule:
    """Does what `cuda.compile` does, with NVSHMEM's device functions. Initialises NVSHMEM: collective the first time.

    Raises CompileError as cuda.compile, and if the functions cannot be linked.
    """
    given = source_files.read(source, sys._getframe(1))
    nvshmem = library()
    linker = link.Linker(arch or cuda.device_arch())
    return cuda.load(linker.behind_header(given), tuple(options), arch, linker.to_cubin, nvshmem.attach)
