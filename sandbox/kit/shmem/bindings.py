"""NVSHMEM's host library by ctypes: initialisation by a unique id, symmetric memory, peers' addresses, modules.

All addresses are ints. A failed call raises BackendError. NVSHMEM has no timeouts: a rank that calls a collective
function alone blocks in it until its world is killed.
"""

import ctypes
import functools
import os
from collections.abc import Callable

from sandbox.kit.errors import BackendError
from sandbox.machine import nvshmem_package

ROOM, OWN = 64 << 20, 192 << 20
"""Symmetric memory beyond the kit's heap: what a kernel allocates by `library()`, and NVSHMEM's own (seen: 132 MiB)."""
_GRANULE = 2 << 20
_BY_UNIQUE_ID = 8
_VERSION_1 = 1 << 16
INITIALISED = 2
"""From this value of nvshmemx_init_status on, NVSHMEM is initialised."""


IDENTITY = {0: 128}
"""nvshmemx_uniqueid_t: its version at this offset, and its size in bytes."""
ATTRIBUTES = {0: 144, 16: 128, 24: 24}
"""nvshmemx_init_attr_t: itself, and within it nvshmemx_init_args_t and nvshmemx_uniqueid_args_t: each one's offset and size."""


def versioned(structs: dict[int, int]) -> "ctypes.Array[ctypes.c_char]":
    """Zeros for the first of these structs. Each has version 1 and its size in its first field, as NVSHMEM checks them."""
    memory = ctypes.create_string_buffer(structs[0])
    for offset, size in structs.items():
        ctypes.c_int32.from_buffer(memory, offset).value = _VERSION_1 + size
    return memory


class Library:
    """The loaded library. Its own functions, such as `dll.nvshmem_malloc`, may be called, too."""

    def __init__(self) -> None:
        found = nvshmem_package.package()
        if found is None:
            raise BackendError("shmem needs the package nvidia-nvshmem-cu13, which comes with torch for CUDA 13")
        self.name = nvshmem_package.named(found)
        if found.version[0] != nvshmem_package.MAJOR:
            raise BackendError(f"the kit knows NVSHMEM {nvshmem_package.MAJOR}, and this is {self.name}")
        try:
            self.dll = dll = ctypes.CDLL(str(found.folder / nvshmem_package.HOST_LIBRARY), ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise BackendError(f"{self.name} cannot be loaded: {error}") from None
        self._left = 0
        self._allocated: dict[int, int] = {}
        pointer, size, integer = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        dll.nvshmem_malloc.restype = dll.nvshmem_ptr.restype = pointer
        dll.nvshmem_malloc.argtypes = [size]
        dll.nvshmem_free.argtypes = [pointer]
        dll.nvshmem_ptr.argtypes = [pointer, integer]
        dll.nvshmemx_cumodule_init.argtypes = [pointer]
        dll.nvshmemx_barrier_all_on_stream.argtypes = [pointer]

    @property
    def is_initialised(self) -> bool:
        """Whether NVSHMEM has been initialised in this process, by any code."""
        return int(self.dll.nvshmemx_init_status()) >= INITIALISED

    def initialise(self, rank: int, world: int, heap_bytes: int, share: Callable[[bytes | None], bytes]) -> None:
        """Initialises NVSHMEM on the current device; collective.

        heap_bytes: symmetric memory for `allocate`. share: rank 0 calls it with bytes, the others with None; it returns
        rank 0's bytes.
        """
        if self.is_initialised:
            raise BackendError(
                "NVSHMEM is initialised in this process already (by torch's symmetric memory with backend NVSHMEM?); "
                "use one of the two"
            )
        most = 1 << (heap_bytes + ROOM + OWN - 1).bit_length()  # address space; memory is used once it is allocated
        os.environ |= nvshmem_package.ENVIRONMENT | {
            "NVSHMEM_SYMMETRIC_SIZE": str(heap_bytes + ROOM),
            "NVSHMEM_MAX_MEMORY_PER_GPU": str(most),
            "NVSHMEM_CUMEM_GRANULARITY": str(_GRANULE),
        }
        identity = versioned(IDENTITY)
        if rank == 0:
            self._require("nvshmemx_get_uniqueid", ctypes.byref(identity))
        identity.raw = share(identity.raw if rank == 0 else None)
        attributes = versioned(ATTRIBUTES)
        both = (ctypes.byref(identity), ctypes.byref(attributes))
        self._require("nvshmemx_set_attr_uniqueid_args", rank, world, *both)
        self._require("nvshmemx_hostlib_init_attr", _BY_UNIQUE_ID, ctypes.byref(attributes))
        self._left = heap_bytes + ROOM

    def allocate(self, nbytes: int) -> int:
        """Allocates symmetric memory; collective. NVSHMEM itself would end the process if there is none left."""
        pointer = self.dll.nvshmem_malloc(nbytes) if nbytes <= self._left else None
        if not pointer:
            raise BackendError(
                f"NVSHMEM has no {nbytes} bytes of symmetric memory: {self._left} are left; PKB_SYMM_BYTES sets the size"
            )
        self._allocated[pointer] = nbytes
        self._left -= nbytes
        return int(pointer)

    def free(self, pointer: int) -> None:
        """Frees memory of `allocate`; collective."""
        if pointer not in self._allocated:
            raise BackendError(f"{pointer:#x} is no symmetric memory of `allocate`, or was freed already")
        self.dll.nvshmem_free(pointer)
        self._left += self._allocated.pop(pointer)

    def address(self, pointer: int, peer: int) -> int:
        """A peer's place of an address in symmetric memory, as this GPU maps it."""
        found = self.dll.nvshmem_ptr(pointer, peer)
        if not found:
            raise BackendError(
                f"rank {peer}'s symmetric memory cannot be reached: the GPUs need NVLink or PCIe peer access"
            )
        return int(found)

    def attach(self, module: int) -> None:
        """Gives a loaded module (CUmodule) with device functions NVSHMEM's state."""
        self._require("nvshmemx_cumodule_init", module)

    def _require(self, name: str, *arguments: object) -> None:
        status = getattr(self.dll, name)(*arguments)
        if status:
            raise BackendError(f"{name} of {self.name} failed with status {status}")


@functools.cache
def library() -> Library:
    """The library of this process. Raises BackendError."""
    return Library()
