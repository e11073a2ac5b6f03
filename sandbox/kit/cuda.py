'''CUDA C++ for GPU ranks, compiled with NVRTC through CuPy.

    from sandbox.kit import cuda, symm

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
    mod.add_all[64, 256](symm.px, staged, y, y.numel(), symm.next_epoch())

Every `extern "C" __global__` kernel becomes an attribute. In brackets: grid, block and, if needed, bytes of
dynamic shared memory; grid and block are an int or up to three. `mod.kernel.cooperative[...]` launches all
blocks at once and raises when they do not fit. Launches go to torch's current stream and return at once.
px.cuh is included already; `#include <cuda_bf16.h>` works where the headers are, `<cooperative_groups.h>` and
`<cuda/atomic>` cost half a second of compile time each.
'''

import ctypes
import functools
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from sandbox.kit.compilers import build, nvrtc, source_files, stamps
from sandbox.kit.compilers.arguments import converter, ctypes_of
from sandbox.kit.compilers.signature import Function, Parameter, exported
from sandbox.kit.errors import ArgumentError, CompileError, KernelError
from sandbox.kit.layout import Px, PxNumbers

Extent = int | Sequence[int]
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_FREE_SHARED = 48 << 10  # more dynamic shared memory than this must be asked for


class Kernel:
    """One kernel; `kernel[grid, block, shared_bytes]` can be called."""

    def __init__(self, function: Function, handle: int, driver: Any, device: int, cooperative: bool = False) -> None:
        self.function = function
        self.handle, self.driver, self.device = handle, driver, device
        self.is_cooperative = cooperative
        self._launchers: dict[Any, Launcher] = {}

    @functools.cached_property
    def cooperative(self) -> "Kernel":
        """The same kernel, launched with all blocks resident at once (grid barriers need that)."""
        return Kernel(self.function, self.handle, self.driver, self.device, cooperative=True)

    def __getitem__(self, shape: tuple[Any, ...]) -> "Launcher":
        found = self._launchers.get(shape)
        if found is None:
            if not isinstance(shape, tuple) or not 2 <= len(shape) <= 3:
                raise ArgumentError(f"launch as {self.function.name}[grid, block] or [grid, block, shared_bytes]")
            grid, block = _extent(shape[0], "grid"), _extent(shape[1], "block")
            shared = int(shape[2]) if len(shape) == 3 else 0
            self._check(grid, block, shared)
            found = self._launchers[shape] = Launcher(self, (*grid, *block, shared))
        return found

    def _check(self, grid: tuple[int, ...], block: tuple[int, ...], shared: int) -> None:
        name = self.function.name
        threads = block[0] * block[1] * block[2]
        if threads > 1024:
            raise ArgumentError(f"{name}: a block has at most 1024 threads, not {threads}")
        limits: Any = torch.cuda.get_device_properties(self.device)
        if shared > _FREE_SHARED:
            if shared > limits.shared_memory_per_block_optin:
                raise ArgumentError(
                    f"{name}: {shared} bytes of shared memory; this GPU has {limits.shared_memory_per_block_optin}"
                )
            self.driver.funcSetAttribute(self.handle, _MAX_DYNAMIC_SHARED, shared)
        if self.is_cooperative:
            blocks = grid[0] * grid[1] * grid[2]
            each = self.driver.occupancyMaxActiveBlocksPerMultiprocessor(self.handle, threads, shared)
            if blocks > each * limits.multi_processor_count:
                raise KernelError(
                    f"{name}: a cooperative launch of {blocks} blocks does not fit: {each} a multiprocessor "
                    f"on {limits.multi_processor_count} multiprocessors"
                )


class Launcher:
    """A kernel with its launch shape. Argument slots are laid out once, so that a launch only fills them
    in."""

    def __init__(self, kernel: Kernel, shape: tuple[int, ...]) -> None:
        """shape: grid and block in three dimensions each, and bytes of dynamic shared memory."""
        function, driver = kernel.function, kernel.driver
        self._function, self._handle, self._device = function, kernel.handle, kernel.device
        self._shape = shape
        self._launch = driver.launchCooperativeKernel if kernel.is_cooperative else driver.launchKernel
        self._extra = () if kernel.is_cooperative else (0,)
        parameters = function.parameters
        self._convert = [converter(p, i, function, "cuda") for i, p in enumerate(parameters)]
        self._slots = [_slot(parameter) for parameter in parameters]
        self._takes_px = [parameter.is_px and not parameter.pointers for parameter in parameters]
        self._takes_numbers = [parameter.is_numbers for parameter in parameters]
        self._table = (ctypes.c_void_p * max(len(self._slots), 1))(*map(ctypes.addressof, self._slots))
        self._table_at = ctypes.addressof(self._table)

    def __call__(self, *arguments: Any) -> None:
        if len(arguments) != len(self._slots):
            raise ArgumentError(
                f"{self._function.name} takes {len(self._slots)} arguments, got {len(arguments)}: {self._function}"
            )
        for index, value in enumerate(arguments):
            ready = self._convert[index](value)
            if self._takes_px[index]:
                # The driver copies arguments at the launch, so the struct itself can serve as the slot.
                self._table[index] = ctypes.addressof(ready)
            elif self._takes_numbers[index]:
                self._slots[index].at = ready.at
            else:
                self._slots[index].value = ready
        stream = torch._C._cuda_getCurrentRawStream(self._device)
        self._launch(self._handle, *self._shape, stream, self._table_at, *self._extra)


def compile(
    source: str | os.PathLike[str], options: Sequence[str] = (), arch: str | None = None
) -> build.CompiledModule:
    """Compile CUDA C++ once per world and load it on this rank's current device.

    source: text with at least one `extern "C" __global__` kernel, or the path of a file beside the kernel.
    options: added to NVRTC's. arch: the current device's, with the architecture-specific features (sm_90a), if not
    given. Raises CompileError with `line` in the calling Python file; without a GPU or without CuPy it says so.
    """
    if not torch.cuda.is_available():
        raise CompileError("cuda.compile needs a CUDA GPU, and torch sees none here; on CPU ranks use sandbox.kit.cpp")
    given = source_files.read(source, sys._getframe(1))
    flags = (*options, *stamps.options(given.text))
    artefact, functions = compile_cubin(given, flags, arch or device_arch())
    from cupy.cuda import driver

    device = torch.cuda.current_device()
    # Makes the device's context the thread's: the driver calls below need one.
    torch.cuda.current_stream().synchronize()
    module = driver.moduleLoadData(artefact.read_bytes())
    stamps.connect(module, given.text, driver)
    kernels = {f.name: Kernel(f, driver.moduleGetFunction(module, f.name), driver, device) for f in functions}
    return build.CompiledModule(kernels, artefact, 'extern "C" __global__ kernel')


def compile_cubin(source: source_files.SourceText, options: tuple[str, ...], arch: str) -> tuple[Path, list[Function]]:
    """The cubin of a source, from the cache or built once per world, and its kernels' signatures. Needs no
    GPU."""
    functions = [function for function in exported(source.text).values() if function.kernel]
    if not functions:
        raise CompileError('nothing to launch: define at least one `extern "C" __global__ void name(...) { ... }`')
    version = repr(nvrtc.binding().getVersion())
    texts = (source.text, *source.headers)
    name = build.content_key(*texts, nvrtc.header(), arch, version, *nvrtc.OPTIONS, *options) + ".cubin"

    def make(output: Path) -> None:
        with source.readable():
            output.write_bytes(nvrtc.to_cubin(source.located, arch, (*options, *source.flags)))

    return build.once(name, make), functions


def device_arch() -> str:
    """The current device's architecture for NVRTC, for example "sm_90a"."""
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


def _extent(value: Any, what: str) -> tuple[int, int, int]:
    extents = (value,) if isinstance(value, int) else tuple(value)
    if not 1 <= len(extents) <= 3 or not all(isinstance(extent, int) and extent > 0 for extent in extents):
        raise ArgumentError(f"{what} must be one to three positive ints, got {value!r}")
    x, y, z = (*extents, 1, 1)[:3]
    return x, y, z


def _slot(parameter: Parameter) -> Any:
    """Memory that holds one argument as the kernel expects it."""
    if parameter.pointers:
        return ctypes.c_void_p()
    if parameter.is_px:
        return Px()
    if parameter.is_numbers:
        return PxNumbers()
    assert parameter.scalar is not None
    return ctypes_of(parameter.scalar)()
