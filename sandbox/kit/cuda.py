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
blocks at once and raises an error if they do not fit. Launches go to torch's current stream and return at once.
`kernels = cuda.lazy(source)` compiles at the first call of `kernels(x.dtype)`, with the dtype's name for the word TYPE.
`sandbox.kit.recorded` lets a call of many launches take the host little longer than one launch.
px.cuh is included already; `#include <cuda_bf16.h>` works if the headers are installed; `<cooperative_groups.h>` and
`<cuda/atomic>` cost half a second of compile time each.
'''

import ctypes
import functools
import os
import re
import struct
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from sandbox.kit.compilers import build, nvrtc, source_files, stamps
from sandbox.kit.compilers.arguments import Function, Parameter, converter, exported
from sandbox.kit.errors import ArgumentError, CompileError, KernelError

Compiler = Callable[[str, str, tuple[str, ...]], bytes]
"""Compiles a source for an architecture, with options, to a cubin."""
own_kernels = set[str]()
"""Names of the kernels that this process has compiled."""
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_FREE_SHARED = 48 << 10  # more dynamic shared memory than this must be requested
FLOATS = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "float"}
"""The dtypes that px.cuh converts to float and back, with their names in CUDA."""
_WORDS = {torch.uint16: "u16", torch.uint32: "u32", torch.uint64: "u64"}


class Kernel:
    """One kernel. `kernel[grid, block, shared_bytes](...)` launches it."""

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
    """A kernel with its launch shape. Each argument has a fixed place, which a launch only fills in.

    Each launch runs this Python code in addition to the driver's, so the usual case makes one pass over the arguments
    and one call that writes them all.
    """

    def __init__(self, kernel: Kernel, shape: tuple[int, ...]) -> None:
        """shape: grid and block in three dimensions each, and bytes of dynamic shared memory."""
        function, driver = kernel.function, kernel.driver
        self._function, self._device = function, kernel.device
        launch = driver.launchCooperativeKernel if kernel.is_cooperative else driver.launchKernel
        self._launch = functools.partial(launch, kernel.handle, *shape)
        self._convert = [converter(p, i, function, "cuda") for i, p in enumerate(function.parameters)]
        self._ready = [_ready_type(parameter) for parameter in function.parameters]
        packed = struct.Struct("<" + "".join(map(_format, function.parameters)))
        self._pack = packed.pack_into
        self._values = ctypes.create_string_buffer(max(packed.size, 1))
        """Eight bytes for each argument, with their addresses in `_table`. Structs are elsewhere."""
        count = len(function.parameters)
        first = ctypes.addressof(self._values)
        self._table = (ctypes.c_void_p * max(count, 1))(*range(first, first + 8 * count, 8))
        self._structs = [i for i, p in enumerate(function.parameters) if _is_struct(p)]
        table_at = ctypes.addressof(self._table)
        self._launch_end = (table_at,) if kernel.is_cooperative else (table_at, 0)

    def __call__(self, *arguments: Any) -> None:
        if len(arguments) != len(self._convert):
            raise ArgumentError(
                f"{self._function.name} takes {len(self._convert)} arguments, got {len(arguments)}: {self._function}"
            )
        values: list[Any] = [
            value if type(value) is ready else convert(value)
            for value, ready, convert in zip(arguments, self._ready, self._convert)  # noqa: B905 - counted above
        ]
        try:
            self._pack(self._values, 0, *values)
        except (struct.error, OverflowError):  # a number is outside its type
            values = [convert(value) for value, convert in zip(arguments, self._convert, strict=True)]
            self._pack(self._values, 0, *values)
        for index in self._structs:  # the driver copies arguments at the launch, so it can read the struct itself
            self._table[index] = ctypes.addressof(values[index])
        self._launch(torch._C._cuda_getCurrentRawStream(self._device), *self._launch_end)


def compile(
    source: str | os.PathLike[str], options: Sequence[str] = (), arch: str | None = None
) -> build.CompiledModule:
    """Compiles CUDA C++ once per world and loads it on this rank's current device.

    source: text with at least one `extern "C" __global__` kernel, or the path of a file beside the kernel.
    options: added to NVRTC's. arch: the current device's, with the architecture-specific features (sm_90a), if not
    given. Raises CompileError with `line` in the calling Python file, or if there is no GPU or no CuPy.
    """
    frame = sys._getframe(1)
    while frame.f_globals is globals() and frame.f_back is not None:  # `lazy` compiles for its caller
        frame = frame.f_back
    return load(source_files.read(source, frame), tuple(options), arch)


def lazy(source: str) -> Callable[..., Any]:
    """Returns kernels(dtype, **words), which compiles a source at its first call with these arguments and returns the module.

    In the source, the word TYPE stands for the dtype's name: one of FLOATS, or u16, u32, u64 for torch.uint16 to
    torch.uint64. Each name of `words` stands for its value. Without arguments the source is compiled as it is. If kernels
    wait for other ranks, call it before the ranks exchange anything: a kernel that waits for a rank which still compiles
    traps after 2 s. Raises as `compile`, and ArgumentError for another dtype.
    """

    @functools.cache
    def kernels(dtype: torch.dtype | None = None, **words: object) -> Any:
        if dtype is not None:
            names = FLOATS | _WORDS
            if dtype not in names:
                raise ArgumentError(f"kernels for a dtype exist for {', '.join(map(str, names))}, not for {dtype}")
            words["TYPE"] = names[dtype]
        return compile(re.sub(r"\w+", lambda word: str(words.get(word[0], word[0])), source))

    return kernels


def unit_of(x: torch.Tensor) -> torch.dtype:
    """The dtype of the words that kernels move: uint32, or uint16 if the elements' size is no multiple of four bytes."""
    return torch.uint16 if x.element_size() % 4 else torch.uint32


def load(
    given: source_files.SourceText,
    options: tuple[str, ...] = (),
    arch: str | None = None,
    to_cubin: Compiler = nvrtc.to_cubin,
    attach: Callable[[int], object] | None = None,
) -> build.CompiledModule:
    """Does what `compile` does for a source that was read. attach(module): prepares the loaded module (CUmodule)."""
    if not torch.cuda.is_available():
        raise CompileError("cuda.compile needs a CUDA GPU, and torch sees none here; on CPU ranks use sandbox.kit.cpp")
    flags = (*options, *stamps.options(given.text))
    artefact, functions = compile_cubin(given, flags, arch or device_arch(), to_cubin)
    from cupy.cuda import driver

    device = torch.cuda.current_device()
    # Makes the device's context current in this thread, which the driver calls below need.
    torch.cuda.current_stream().synchronize()
    module = driver.moduleLoadData(artefact.read_bytes())
    stamps.connect(module, given.text, driver)
    if attach is not None:
        attach(module)
    kernels = {f.name: Kernel(f, driver.moduleGetFunction(module, f.name), driver, device) for f in functions}
    own_kernels.update(kernels)
    return build.CompiledModule(kernels, artefact, 'extern "C" __global__ kernel')


def compile_cubin(
    source: source_files.SourceText, options: tuple[str, ...], arch: str, to_cubin: Compiler = nvrtc.to_cubin
) -> tuple[Path, list[Function]]:
    """The cubin of a source, from the cache or built once per world, and its kernels' signatures. Needs no GPU."""
    functions = [function for function in exported(source.text).values() if function.kernel]
    if not functions:
        raise CompileError('nothing to launch: define at least one `extern "C" __global__ void name(...) { ... }`')
    version = repr(nvrtc.binding().getVersion())
    texts = (to_cubin.__module__, source.text, *source.headers)
    name = build.content_key(*texts, nvrtc.header(), arch, version, *nvrtc.OPTIONS, *options) + ".cubin"

    def make(output: Path) -> None:
        with source.readable():
            output.write_bytes(to_cubin(source.located, arch, (*options, *source.flags)))

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


def _is_struct(parameter: Parameter) -> bool:
    return parameter.is_handle or (not parameter.pointers and (parameter.is_px or parameter.is_numbers))


def _ready_type(parameter: Parameter) -> type | None:
    """The Python type whose values are written as they are; all others are checked and converted first."""
    if _is_struct(parameter):
        return None
    if parameter.pointers or (parameter.scalar is not None and parameter.scalar.kind == "int"):
        return int
    return float if parameter.scalar is not None and parameter.scalar.kind == "float" else None


def _format(parameter: Parameter) -> str:
    """A `struct` format of eight bytes. A struct's place is not used: its `?` accepts any object."""
    if _is_struct(parameter):
        return "?7x"
    if parameter.pointers:
        return "Q"
    scalar = parameter.scalar
    assert scalar is not None
    if scalar.kind == "bool":
        return "?7x"
    if scalar.kind == "float":
        return "f4x" if scalar.bytes == 4 else "d"
    letter = {1: "b", 2: "h", 4: "i", 8: "q"}[scalar.bytes]
    return (letter if scalar.low else letter.upper()) + ("" if scalar.bytes == 8 else f"{8 - scalar.bytes}x")
