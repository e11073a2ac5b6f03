"""NCCL's headers for device code as one text that NVRTC compiles: the installed files, put together, with few changes.

The text is made at run time from the installed package, and is never shipped.
"""

import functools
import re
from collections.abc import Callable
from pathlib import Path

from sandbox.kit.compilers import nvrtc, source_files
from sandbox.kit.compilers.gcc import INCLUDE
from sandbox.kit.errors import CompileError
from sandbox.machine import nccl_package

NAME = "nccl_device.h"
OPTIONS = (f"-I{INCLUDE / 'nccl'}", "-DNCCL_GIN_GDAKI_ENABLE=0", "-DNCCL_GIN_PROXY_ENABLE=0")
"""For NVRTC. The folder has replacements of the system's headers. NVRTC cannot compile GIN's headers."""

_INCLUDED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)".*$', re.MULTILINE)
_GIN = "ncclGin"
_WAIT = "if (__builtin_expect(okAll, true)) break;"
_EPOCH = "this->epoch = state[(this->multimem ? 0 : 1)*this->handle.nBarriers + this->index];"
_CHANGES = {
    # Its unions have arrays without elements for types that are smaller than the largest word. NVRTC refuses these.
    "nccl_device/utility.h": [(f"[sizeof(T)/{n}]", f"[(sizeof(T)+{n - 1})/{n}]") for n in (2, 4, 8, 16)],
    # A word that never comes ends in a trap, as in the kit's own waits.
    "nccl_device/impl/ll_a2a__funcs.h": [
        (_WAIT, f"{_WAIT} patience.look();"),
        ("while (true) {", "PxPatience patience; while (true) {"),
    ],
    # A barrier beyond the last one would be foreign memory.
    "nccl_device/impl/lsa_barrier__funcs.h": [(_EPOCH, f"if (index >= (uint32_t)handle.nBarriers) __trap(); {_EPOCH}")],
}
_SIZES = """
static_assert(sizeof(ncclDevComm) == {devcomm}, "ncclDevComm is not as the kit has it");
static_assert(sizeof(ncclDevCommRequirements) == {requirements}, "ncclDevCommRequirements is not as the kit has it");
static_assert(sizeof(ncclDevResourceRequirements) == {resource}, "ncclDevResourceRequirements is not as the kit has it");
"""


def installed() -> nccl_package.Package:
    """The installed headers.

    Raises:
        CompileError: there are none, or the kit does not support their version.
    """
    headers = nccl_package.nccl_headers()
    if headers is None:
        raise CompileError("nccl.compile needs nccl_device.h; `pkb-arena doctor` says which package has it")
    if headers.version not in nccl_package.LAYOUTS:
        raise CompileError(nccl_package.unknown(headers.version))
    return headers


@functools.cache
def device_text(headers: nccl_package.Package) -> str:
    """nccl_device.h with all that it includes, changed for NVRTC.

    Raises:
        CompileError: the files are not those for which the changes were made.
    """
    text = _put_together(headers.folder, headers.folder / NAME, set())
    sizes = _SIZES.format(**nccl_package.LAYOUTS[headers.version]._asdict())
    # px.cuh has defined neither; NVRTC knows no host code.
    return f'#undef __host__\n#define __host__\n#line 1 "{NAME}"\n{text}\n{sizes}'


def compilation(
    source: source_files.SourceText,
) -> tuple[source_files.SourceText, tuple[str, ...], Callable[[str, str, tuple[str, ...]], bytes]]:
    """How a source is compiled: with nccl_device.h in front, the options, and the function that compiles to a cubin.

    That is NVRTC's, or nvcc's for headers that the kit cannot change for NVRTC and for sources with GIN.

    Raises CompileError as `installed` and `device_text`.
    """
    headers = installed()
    if nccl_package.LAYOUTS[headers.version].for_nvrtc and _GIN not in source.text:
        text = device_text(headers)
        behind = source._replace(located=f"{text}\n{source.located}", headers=(*source.headers, text))
        return behind, OPTIONS, nvrtc.to_cubin
    version = nccl_package.dotted(headers.version)
    behind = source._replace(located=f"#include <{NAME}>\n{source.located}", headers=(*source.headers, version))
    return behind, (f"-I{headers.folder}",), nvrtc.nvcc_to_cubin


def _put_together(root: Path, path: Path, seen: set[Path]) -> str:
    """A header in which the headers of the package replace its includes, each only once."""
    seen.add(path)
    name = str(path.relative_to(root))
    text = path.read_text(encoding="utf-8", errors="replace")
    for old, new in _CHANGES.get(name, ()):
        if text.count(old) != 1:
            raise CompileError(
                f"{name} of the installed NCCL is not as the kit knows it: {text.count(old)} times {old!r}"
            )
        text = text.replace(old, new)

    def included(match: re.Match[str]) -> str:
        places = (path.parent / match[1], root / match[1])
        found = next((place.resolve() for place in places if place.is_file()), None)
        if found is None:
            return match[0]  # the compiler refuses it if the line is active
        return "" if found in seen else _put_together(root, found, seen)

    return _INCLUDED.sub(included, text)
