"""A second CUDA context per GPU that copies the inputs right before a batch, and detects foreign work.

All worlds start a batch right after this context has run, so that the driver's context switch costs all of them the
same. Contexts of one GPU run in time slices. So a thread of this context that only reads the clock finds a gap when
another context runs, such as that of a GPU kernel that a stopped contender left running. This module calls the CUDA
driver through ctypes.
"""

import contextlib
import ctypes
from collections.abc import Callable, Iterator

import torch

from sandbox.memory.gpu import call, launch

WATCH_NS = 4_000_000
"""Two time slices of a context (2 ms each by default), so that another context with work gets one of them."""
_BLOCKS, _THREADS = 264, 512
_HOST, _DEVICE, _NON_BLOCKING = 1, 2, 1
_HOST_BYTES, _MOST_PITCH = 1 << 18, (1 << 31) - 1
_PTX = rb"""
.version 7.0
.target sm_70
.address_size 64

// 16-byte words from one place to another, or onto themselves.
.visible .entry copy_words(.param .u64 to, .param .u64 from, .param .u64 words)
{
    .reg .pred %done;
    .reg .b32 %x<4>, %thread, %block, %width, %grid;
    .reg .b64 %to, %from, %words, %i, %step, %at, %source, %target, %t0, %t1;
    ld.param.u64 %to, [to];
    ld.param.u64 %from, [from];
    ld.param.u64 %words, [words];
    mov.u32 %thread, %tid.x;
    mov.u32 %block, %ctaid.x;
    mov.u32 %width, %ntid.x;
    mov.u32 %grid, %nctaid.x;
    mul.wide.u32 %t0, %block, %width;
    cvt.u64.u32 %t1, %thread;
    add.u64 %i, %t0, %t1;
    mul.wide.u32 %step, %grid, %width;
NEXT:
    setp.ge.u64 %done, %i, %words;
    @%done bra END;
    shl.b64 %at, %i, 4;
    add.u64 %source, %from, %at;
    add.u64 %target, %to, %at;
    ld.global.v4.b32 {%x0, %x1, %x2, %x3}, [%source];
    st.global.v4.b32 [%target], {%x0, %x1, %x2, %x3};
    add.u64 %i, %i, %step;
    bra NEXT;
END:
    ret;
}

// The longest time between two looks at the clock, in nanoseconds.
.visible .entry watch(.param .u64 found, .param .u64 length)
{
    .reg .pred %more;
    .reg .b64 %found, %length, %first, %last, %now, %gap, %longest, %spent;
    ld.param.u64 %found, [found];
    ld.param.u64 %length, [length];
    mov.u64 %first, %globaltimer;
    mov.u64 %last, %first;
    mov.u64 %longest, 0;
LOOK:
    mov.u64 %now, %globaltimer;
    sub.u64 %gap, %now, %last;
    max.u64 %longest, %longest, %gap;
    mov.u64 %last, %now;
    sub.u64 %spent, %now, %first;
    setp.lt.u64 %more, %spent, %length;
    @%more bra LOOK;
    st.global.u64 [%found], %longest;
    ret;
}
"""


class InputCopier:
    """One trusted rank's second context. Used from one thread."""

    def __init__(self, index: int) -> None:
        """index: the GPU in CUDA's order in this process. Its primary context stays current.

        Raises:
            DriverError: the context or its code cannot be created.
        """
        device = ctypes.c_int()
        call("cuDeviceGet", ctypes.byref(device), index)
        self._context = ctypes.c_void_p()
        call("cuCtxCreate_v2", ctypes.byref(self._context), 0, device)
        try:
            module = ctypes.c_void_p()
            call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(_PTX))
            self._copy, self._watch = ctypes.c_void_p(), ctypes.c_void_p()
            call("cuModuleGetFunction", ctypes.byref(self._copy), module, b"copy_words")
            call("cuModuleGetFunction", ctypes.byref(self._watch), module, b"watch")
            self._found = ctypes.c_ulonglong()
            call("cuMemAlloc_v2", ctypes.byref(self._found), ctypes.c_size_t(8))
            self._host, self._aside = ctypes.c_void_p(), ctypes.c_void_p()
            call("cuMemAllocHost_v2", ctypes.byref(self._host), ctypes.c_size_t(_HOST_BYTES))
            call("cuStreamCreate", ctypes.byref(self._aside), _NON_BLOCKING)
        finally:
            call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def copy(self, to: int, source: int, size: int) -> None:
        """Copies `size` bytes, rounded up to 16, between two addresses of this GPU, and waits for the end.

        With the same address twice, every word is read and written back, which leaves the caches as a copy does.
        """
        if size:
            with self._current():
                words = -(-size // 16)
                launch(self._copy, (min(-(-words // _THREADS), _BLOCKS), 1), _THREADS, to, source, words)
                call("cuCtxSynchronize")

    def watch(self, nanoseconds: int = WATCH_NS) -> float:
        """The longest time that this context was displaced, in microseconds. Takes `nanoseconds`."""
        longest = ctypes.c_ulonglong()
        with self._current():
            launch(self._watch, (1, 1), 1, self._found.value, nanoseconds)
            call("cuMemcpyDtoH_v2", ctypes.byref(longest), self._found, ctypes.c_size_t(8))
        return longest.value / 1e3

    def reader(self, rows: torch.Tensor) -> Callable[[], torch.Tensor]:
        """A function that copies rows to the host by a copy engine, the last ones that fit. rows: uint8 [rows, bytes]."""
        pitch, width = rows.stride(0), rows.shape[1]
        rows = rows[-min(len(rows), _HOST_BYTES // width if pitch <= _MOST_PITCH else 1) :]
        count = len(rows)
        host, memory = self._host.value or 0, rows.data_ptr()
        kept = torch.frombuffer((ctypes.c_uint8 * (count * width)).from_address(host), dtype=torch.uint8)
        # CUDA_MEMCPY2D: x, y, kind, host, device, array and pitch of the source, then of the target; width and height.
        words = [0, 0, _DEVICE, 0, memory, 0, min(pitch, _MOST_PITCH), 0, 0, _HOST, host, 0, 0, width, width, count]
        copied = (ctypes.c_uint64 * 16)(*words)

        def read() -> torch.Tensor:
            with self._current():
                call("cuMemcpy2DAsync_v2", copied, self._aside)
                call("cuStreamSynchronize", self._aside)
            return kept.view(count, width).clone()

        return read

    @contextlib.contextmanager
    def _current(self) -> Iterator[None]:
        call("cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
