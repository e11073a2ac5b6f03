"""NCCL's host library by ctypes: the calls for device communicators and windows, on a communicator that torch has made.

All addresses are ints. A call that NCCL refuses raises BackendError with NCCL's message.
"""

import ctypes
import functools
from typing import Any

from sandbox.kit.errors import BackendError
from sandbox.machine import nccl_package

_LIBRARY = "libnccl.so.2"
"""By its soname: the library that torch has loaded."""
_COLLECTIVE_SYMMETRIC = 1


class WindowHead(ctypes.Structure):
    """The first fields of ncclWindow_vidmem, which lies on the GPU."""

    _fields_ = (
        ("win_host", ctypes.c_uint64),
        ("lsa_flat_base", ctypes.c_uint64),
        ("lsa_rank", ctypes.c_int32),
        ("world_rank", ctypes.c_int32),
        ("stride_4g", ctypes.c_uint32),
        ("multicast_offset_4k", ctypes.c_uint32),
    )

    def address(self, peer: int) -> int:
        """The window's first byte in a peer's memory, as this GPU maps it."""
        return int(self.lsa_flat_base) + (peer * int(self.stride_4g) << 32)


class LowLatencyHandle(ctypes.Structure):
    """ncclLLA2AHandle."""

    _fields_ = (("buffer", ctypes.c_uint32), ("slots", ctypes.c_uint32))


class Library:
    """The loaded library."""

    def __init__(self) -> None:
        """Raises BackendError if there is none, or the kit does not support its version."""
        try:
            self._dll = ctypes.CDLL(_LIBRARY)
            number = ctypes.c_int()
            self._dll.ncclGetVersion(ctypes.byref(number))
        except (OSError, AttributeError) as error:
            raise BackendError(f"nccl needs {_LIBRARY}, which comes with torch for CUDA: {error}") from None
        self.version = (number.value // 10000, number.value // 100 % 100, number.value % 100)
        if self.version not in nccl_package.LAYOUTS:
            raise BackendError(nccl_package.unknown(self.version))
        self.layout = nccl_package.LAYOUTS[self.version]
        self._dll.ncclGetErrorString.restype = self._dll.ncclGetLastError.restype = ctypes.c_char_p

    def _call(self, name: str, comm: int, *arguments: Any) -> None:
        status = getattr(self._dll, name)(*arguments)
        if status:
            words = self._dll.ncclGetErrorString(status).decode(errors="replace")
            last = (self._dll.ncclGetLastError(ctypes.c_void_p(comm)) or b"").decode(errors="replace").strip()
            raise BackendError(f"{name}: {words}" + (f" ({last.splitlines()[0]})" if last else ""))

    def allocate(self, nbytes: int) -> int:
        """GPU memory that can become a window. Never freed: windows live as long as the world."""
        pointer = ctypes.c_void_p()
        self._call("ncclMemAlloc", 0, ctypes.byref(pointer), ctypes.c_size_t(nbytes))
        return int(pointer.value or 0)

    def register(self, comm: int, pointer: int, nbytes: int) -> int:
        """Makes memory of `allocate` a symmetric window (collective). Returns its ncclWindow_t, 0 if NCCL has none."""
        window = ctypes.c_void_p()
        arguments = (ctypes.c_void_p(pointer), ctypes.c_size_t(nbytes), ctypes.byref(window), _COLLECTIVE_SYMMETRIC)
        self._call("ncclCommWindowRegister", comm, ctypes.c_void_p(comm), *arguments)
        return int(window.value or 0)

    def device_communicator(
        self, comm: int, lsa_barriers: int, ll_blocks: int, ll_slots: int
    ) -> tuple[ctypes.Array[ctypes.c_char], LowLatencyHandle]:
        """A new ncclDevComm, and the handle of its low-latency all-to-all. Collective."""
        layout = self.layout
        requirements = ctypes.create_string_buffer(layout.requirements)
        resource = ctypes.create_string_buffer(layout.resource)
        handle = LowLatencyHandle()
        for offset, word in layout.initial.items():
            ctypes.c_uint32.from_buffer(requirements, offset).value = word
        ctypes.c_int.from_buffer(requirements, layout.lsa_barriers).value = lsa_barriers
        if ll_blocks:
            both = (ctypes.byref(handle), ctypes.byref(resource))
            self._call("ncclLLA2ACreateRequirement", comm, ll_blocks, ll_slots, *both)
            ctypes.c_uint64.from_buffer(requirements, layout.resources).value = ctypes.addressof(resource)
        device = ctypes.create_string_buffer(layout.devcomm)
        self._call("ncclDevCommCreate", comm, ctypes.c_void_p(comm), ctypes.byref(requirements), ctypes.byref(device))
        return device, handle

    def lsa_size(self, device: ctypes.Array[ctypes.c_char]) -> int:
        """The number of ranks of an ncclDevComm that reach each other by loads and stores."""
        return ctypes.c_int.from_buffer(device, self.layout.lsa_size).value


@functools.cache
def library() -> Library:
    """The library of this process. Raises BackendError."""
    return Library()
