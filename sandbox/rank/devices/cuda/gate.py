"""A CUDA rank's side of the starting gate: queues waits and marks on its stream."""

import ctypes
import mmap
from typing import Any

import torch
import torch.distributed as dist

from sandbox.memory.gpu import DriverError, call, driver
from sandbox.protocol.gate import WORD

_GEQ = 0
_PORTABLE_MAPPED = 3


class CudaGate:
    """Queues waits and marks on this rank's current stream."""

    def __init__(self, page: mmap.mmap, rank: int) -> None:
        """Registers the page with the driver, so that streams can wait for its words."""
        self.page = page
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        status = runtime.cudaHostRegister(self.address, len(page), _PORTABLE_MAPPED)
        if int(status) != 0:
            raise DriverError(f"cudaHostRegister: {status}")
        pointer = ctypes.c_ulonglong()
        name = "cuMemHostGetDevicePointer_v2"
        call(name, ctypes.byref(pointer), ctypes.c_void_p(self.address), 0)
        self.release = pointer.value
        self.mine = pointer.value + WORD * (rank + 1)
        self.wait_value = (
            "cuStreamWaitValue32_v2" if hasattr(driver(), "cuStreamWaitValue32_v2") else "cuStreamWaitValue32"
        )
        self.write_value = (
            "cuStreamWriteValue32_v2" if hasattr(driver(), "cuStreamWriteValue32_v2") else "cuStreamWriteValue32"
        )
        self.token = torch.zeros(1, device="cuda")

    def shut(self, epoch: int) -> None:
        """Delays later work until the referee opens the gate and all ranks have reached it (collective)."""
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        call(self.wait_value, stream, ctypes.c_ulonglong(self.release), ctypes.c_uint(epoch), _GEQ)
        dist.all_reduce(self.token)

    def mark(self, epoch: int) -> None:
        """Reports to the referee when all work on this stream is done."""
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        call(self.write_value, stream, ctypes.c_ulonglong(self.mine), ctypes.c_uint(epoch), 0)
