'''NCCL's device API: kernels that read and write their peers' memory through NCCL's own windows and barriers.

    from sandbox.kit import nccl

    dev = nccl.devcomm(lsa_barriers=64)
    mod = nccl.compile(r"""
    extern "C" __global__ void add_all(ncclDevComm dev, ncclWindow_t staged, bf16* y, i64 n) {
        ncclCoopCta cta;
        ncclLsaBarrierSession<ncclCoopCta> barrier(cta, dev, ncclTeamTagLsa(), blockIdx.x);
        barrier.sync(cta, cuda::memory_order_acq_rel);
        for (i64 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
            float sum = 0;
            for (int p = 0; p < dev.lsaSize; ++p) sum += to_float(((bf16*)ncclGetLsaPointer(staged, 0, p))[i]);
            y[i] = from_float<bf16>(sum);
        }
        barrier.sync(cta, cuda::memory_order_acq_rel);
    }
    """)
    staged = nccl.window(x.shape, x.dtype)
    staged.tensor.copy_(x)
    mod.add_all[64, 256](dev, staged, y, y.numel())

Everything uses torch's own communicator. `window` and `devcomm` are collective: all ranks make the same calls in the
same order. px.cuh and nccl_device.h are included already. Waits for NCCL's barriers and low-latency words trap after
2 s, as the kit's own waits do. A barrier whose index is too large traps, too.

With `window.px` a kernel uses functions of px.cuh on a window: px_at, px_turn_barrier, low-latency words. No devcomm is needed.
'''

import ctypes
import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from functools import cache, cached_property
from math import prod
from typing import Any

import torch
import torch.distributed as dist

from sandbox.kit import cuda, layout
from sandbox.kit.compilers import build, source_files
from sandbox.kit.errors import BackendError, BarrierTimeout
from sandbox.kit.nccl import headers
from sandbox.kit.nccl.bindings import LowLatencyHandle, WindowHead, library
from sandbox.kit.symmetric_memory.device_heap import bytes_at
from sandbox.machine.nccl_package import dotted

_AGREE_S = 5.0
_GRANULE = 4096
_TO_HOST = 2


class Window:
    """A buffer on every rank, which all ranks can read and write."""

    def __init__(self, comm: int, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        nbytes = -(-max(prod(shape) * dtype.itemsize, 1) // _GRANULE) * _GRANULE
        nccl = library()
        pointer = nccl.allocate(nbytes)
        whole = bytes_at(pointer, nbytes)
        whole.zero_()
        torch.cuda.synchronize()  # all parts are zero before a peer may write
        self.handle = nccl.register(comm, pointer, nbytes)
        """The ncclWindow_t: an address on this GPU."""
        if not self.handle:
            raise BackendError(
                "NCCL has no symmetric windows here: the GPUs must reach each other's memory, and NCCL_CUMEM_ENABLE and "
                "NCCL_WIN_ENABLE must not be 0"
            )
        self.tensor = whole[: prod(shape) * dtype.itemsize].view(dtype).view(shape)
        """This rank's part, zero at first."""
        head = _head(self.handle)
        self.addresses = [head.address(peer) for peer in range(dist.get_world_size())]
        """The address of every rank's part, as this GPU maps it."""
        self.addresses[dist.get_rank()] = pointer
        self.passed = {"ncclWindow": ctypes.c_void_p(self.handle)}

    @cached_property
    def peers(self) -> list[torch.Tensor]:
        """Every rank's part, this rank's included, indexed by rank."""
        shape, dtype, size = self.tensor.shape, self.tensor.dtype, self.tensor.nbytes
        return [bytes_at(address, size).view(dtype).view(shape) if size else self.tensor for address in self.addresses]

    @cached_property
    def px(self) -> layout.Px:
        """The argument `Px` for kernels with px.cuh: px_at finds peers' places in this window. Collective the first time.

        Its signal pads are NCCL's memory, too, and shared by all windows.
        """
        all_ranks = tuple(range(len(self.addresses)))
        return layout.make_px(self.addresses, _pads().addresses, all_ranks, dist.get_rank())


class DevComm:
    """An ncclDevComm, and the handle of its low-latency all-to-all. Kernels take both by value."""

    def __init__(self, comm: int, lsa_barriers: int, ll_blocks: int, ll_slots: int) -> None:
        nccl = library()
        device, handle = nccl.device_communicator(comm, lsa_barriers, ll_blocks, ll_slots)
        world = dist.get_world_size()
        if (reached := nccl.lsa_size(device)) != world:
            raise BackendError(f"NCCL's loads and stores reach {reached} of {world} ranks")
        self.world = world
        self.passed: dict[str, ctypes.Array[ctypes.c_char] | LowLatencyHandle] = {"ncclDevComm": device}
        if ll_blocks:
            self.passed["ncclLLA2AHandle"] = handle


def world() -> int:
    """The number of ranks."""
    return dist.get_world_size()


_windows: dict[Any, list[Window]] = {}
_turns: dict[Any, int] = {}
_devcomms: dict[tuple[int, int, int], DevComm] = {}
_asked = 0


def window(
    shape: int | Sequence[int], dtype: torch.dtype = torch.uint8, tag: str | None = None, ring: int = 1
) -> Window:
    """The window of this (shape, dtype, tag), or the next of a ring of them. Pass it for `ncclWindow_t`.

    Collective the first time. shape: an int is a number of elements. Raises BackendError if ranks ask for different
    things or NCCL has no windows here, BarrierTimeout with a rank that does not make the call.
    """
    size = (shape,) if isinstance(shape, int) else tuple(shape)
    key = (size, dtype, tag, ring)
    if key not in _windows:
        comm = _communicator(f"window({list(size)}, {str(dtype).removeprefix('torch.')}, tag={tag!r}, ring={ring})")
        _windows[key] = [Window(comm, size, dtype) for _ in range(ring)]
    turn = _turns.get(key, 0)
    _turns[key] = (turn + 1) % ring
    return _windows[key][turn]


def devcomm(lsa_barriers: int = 0, ll_blocks: int = 0, ll_slots: int = 0) -> DevComm:
    """A device communicator. Pass it for `ncclDevComm` and for `ncclLLA2AHandle`.

    lsa_barriers: barriers of a kernel, one per block. ll_blocks, ll_slots: blocks that exchange low-latency words, and
    words of up to 8 bytes that one of them gets from all ranks between two `endEpoch`. The same numbers give the same
    communicator again. Collective the first time. Raises as `window`.
    """
    key = (lsa_barriers, ll_blocks, ll_slots)
    if key not in _devcomms:
        comm = _communicator(f"devcomm(lsa_barriers={lsa_barriers}, ll_blocks={ll_blocks}, ll_slots={ll_slots})")
        _devcomms[key] = DevComm(comm, *key)
    return _devcomms[key]


def compile(
    source: str | os.PathLike[str], options: Sequence[str] = (), arch: str | None = None
) -> build.CompiledModule:
    """Does what `cuda.compile` does, with nccl_device.h in front.

    Raises CompileError also for headers that the kit does not support, and BackendError if torch has loaded another
    version of NCCL than that of the headers. A source that uses GIN is compiled by nvcc in seconds, and its waits do
    not time out.
    """
    given, flags, to_cubin = headers.compilation(source_files.read(source, sys._getframe(1)))
    if (loaded := library().version) != (of := headers.installed().version):
        raise BackendError(f"nccl_device.h is of NCCL {dotted(of)}, and torch has loaded {dotted(loaded)}")
    return cuda.load(given, (*flags, *options), arch, to_cubin)


@cache
def _pads() -> Window:
    """The signal pads of `Window.px`: 1024 slots of 8 words."""
    return Window(_communicator("px"), (layout.SLOTS * layout.MAX_WORLD,), torch.int32)


def _communicator(what: str) -> int:
    """torch's ncclComm_t, after all ranks have made the same call."""
    if not dist.is_initialized() or "nccl" not in dist.get_backend_config():
        raise BackendError("nccl needs GPU ranks: torch.distributed has no NCCL communicator here")
    rank, world = dist.get_rank(), dist.get_world_size()
    if world > layout.MAX_WORLD:
        raise BackendError(f"nccl serves worlds of up to {layout.MAX_WORLD} ranks, this one has {world}")
    _agree(what, rank, world)
    comm = _torch_communicator()
    if not comm:  # it is made by the first collective
        dist.all_reduce(torch.zeros(1, device="cuda"))
        comm = _torch_communicator()
    if not comm:
        raise BackendError("torch gives no NCCL communicator for this device")
    return comm


def _torch_communicator() -> int:
    backend: Any = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cuda"))
    try:
        return int(backend._comm_ptr())
    except AttributeError:
        raise BackendError(f"torch {torch.__version__} does not give its NCCL communicator; 2.11 does") from None


def _agree(what: str, rank: int, world: int) -> None:
    """Waits until all ranks have made the same call. NCCL itself would block forever, or accept different sizes."""
    global _asked
    _asked += 1
    store = dist.distributed_c10d._get_default_store()
    store.set(f"pkb-kit/nccl/{_asked}/{rank}", what)
    for peer in range(world):
        key = f"pkb-kit/nccl/{_asked}/{peer}"
        try:
            store.wait([key], timedelta(seconds=_AGREE_S))
        except RuntimeError:
            raise BarrierTimeout(
                f"rank {peer} did not ask for nccl.{what} within {_AGREE_S:g} s, which is collective", [peer]
            ) from None
        other = store.get(key).decode(errors="replace")
        if other != what:
            raise BackendError(
                f"ranks ask for different things: rank {rank} for nccl.{what}, rank {peer} for nccl.{other}"
            )


def _head(handle: int) -> WindowHead:
    from cupy.cuda import runtime

    head = WindowHead()
    runtime.memcpy(ctypes.addressof(head), handle, ctypes.sizeof(head), _TO_HOST)
    return head
