"""Links a kernel with NVSHMEM's device functions. Needs no GPU.

It links NVRTC's relocatable object, the wrapper that nvcc has built, and the package's archive. nvJitLink takes
milliseconds for it.
"""

import functools
from pathlib import Path
from typing import Any

from sandbox.kit.compilers import nvrtc, source_files
from sandbox.kit.compilers.gcc import INCLUDE
from sandbox.kit.errors import CompileError
from sandbox.machine import kernel_cache, nvshmem_package

HEADER = "px_nvshmem.cuh"
OPTIONS = ("--relocatable-device-code=true", f"-I{INCLUDE / 'nvshmem'}")
"""For NVRTC. The folder has stand-ins for nvshmem.h and nvshmemx.h, which kernels may include."""
_BUILDS = "python -m sandbox.machine.nvshmem_package"


class Linker:
    """The objects for one architecture."""

    def __init__(self, arch: str) -> None:
        """arch: in NVRTC's form, such as "sm_90a". Raises CompileError that names what is missing."""
        found = nvshmem_package.package()
        if found is None:
            raise CompileError("shmem.compile needs the package nvidia-nvshmem-cu13")
        self.wrapper = kernel_cache.shared() / nvshmem_package.wrapper_name(found, arch.rstrip("a"))
        if not self.wrapper.is_file():
            why = "" if nvshmem_package.nvcc() else "; there is no nvcc on this machine"
            raise CompileError(
                f"NVSHMEM's device functions were not built{why}. `{_BUILDS}` says why; px.cuh's functions on shmem.px need none"
            )
        self._library = found.folder / nvshmem_package.DEVICE_LIBRARY

    def behind_header(self, source: source_files.SourceText) -> source_files.SourceText:
        """The source with NVSHMEM's device functions in front. Its `headers` also name the wrapper to link."""
        text = (INCLUDE / HEADER).read_text()
        located = f'#line 1 "{HEADER}"\n{text}\n{source.located}'
        return source._replace(located=located, headers=(*source.headers, text, self.wrapper.name))

    def to_cubin(self, source: str, arch: str, options: tuple[str, ...]) -> bytes:
        """Compiles with NVRTC and links. Raises CompileError, with the linker's output if linking fails."""
        cubin = nvrtc.to_cubin(source, arch, (*OPTIONS, *options))
        linker = _binding()
        handle = linker.create(1, [f"-arch={arch}"])
        try:
            parts = (
                (linker.InputType.CUBIN, cubin, "kernel"),
                (linker.InputType.CUBIN, self.wrapper.read_bytes(), "nvshmem"),
                (linker.InputType.LIBRARY, _bytes_of(self._library), "nvshmem_device"),
            )
            for kind, data, name in parts:
                linker.add_data(handle, kind, data, len(data), name)
            linker.complete(handle)
            linked = bytearray(linker.get_linked_cubin_size(handle))
            linker.get_linked_cubin(handle, linked)
            return bytes(linked)
        except linker.nvJitLinkError as error:
            log = bytearray(linker.get_error_log_size(handle))
            linker.get_error_log(handle, log)
            text = log.decode(errors="replace").strip("\0 \n")
            first = next((line for line in text.splitlines() if line), str(error))
            raise CompileError(f"linking with NVSHMEM failed: {first}", None, text) from None
        finally:
            linker.destroy(handle)


@functools.cache
def _bytes_of(path: Path) -> bytes:
    return path.read_bytes()


@functools.cache
def _binding() -> Any:
    try:
        from cuda.bindings import nvjitlink

        nvjitlink.version()
    except Exception as error:  # it has its own exceptions for a library that is not found
        raise CompileError(
            f"shmem.compile needs cuda-bindings and nvidia-nvjitlink, which come with torch: {error}"
        ) from None
    return nvjitlink
