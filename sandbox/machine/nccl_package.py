"""The installed NCCL package: its version, its headers for device code, and the layouts of its structs. Imports no torch."""

import contextlib
import functools
import re
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

PACKAGES = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")

Version = tuple[int, int, int]


class Layout(NamedTuple):
    """Sizes and offsets, in bytes, of the structs that host and kernels exchange with one version of NCCL."""

    devcomm: int
    """Size of ncclDevComm."""
    lsa_size: int
    """Offset of its lsaSize."""
    requirements: int
    """Size of ncclDevCommRequirements."""
    resources: int
    """Offset of its resourceRequirementsList."""
    lsa_barriers: int
    """Offset of its lsaBarrierCount."""
    resource: int
    """Size of ncclDevResourceRequirements."""
    initial: Mapping[int, int] = {}
    """Words of ncclDevCommRequirements that are not 0 at first, by offset: its size, a magic number, the version."""
    for_nvrtc: bool = False
    """Whether the kit can adapt these headers to NVRTC. Otherwise nvcc compiles them unchanged, and their waits do not
    time out."""


_MAGIC = 0xCAFEBEEF
LAYOUTS: dict[Version, Layout] = {
    (2, 28, 9): Layout(200, 16, 56, 0, 24, 56, for_nvrtc=True),
    (2, 29, 7): Layout(224, 16, 88, 16, 40, 56, {0: 88, 8: _MAGIC, 12: 22907, 56: 4}),
    (2, 30, 7): Layout(240, 24, 96, 16, 40, 56, {0: 96, 8: _MAGIC, 12: 23007, 56: 4, 80: 1 << 31, 88: 257}),
}
"""Layouts by version of the library. The struct ncclWindow_vidmem begins the same way in all of them. Only 2.28.9 has
run on GPUs."""


class Package(NamedTuple):
    """An installed package of NVIDIA. folder: that of its headers, or with `include` and `lib`."""

    folder: Path
    version: Version


def installed(names: Sequence[str], folder: str, versions: str, prefix: str, needed: str) -> Package | None:
    """The first of these packages with a file; None without one.

    folder: in site-packages. versions: the header with the macros `prefix`MAJOR, ..MINOR and ..PATCH, which may end in _VERSION.
    needed: the file. Both are in `folder`.
    """
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError, OSError, KeyError):
            found = Path(str(metadata.distribution(name).locate_file(folder)))
            text = (found / versions).read_text(encoding="utf-8", errors="replace")
            numbers = dict(
                re.findall(rf"^#define {prefix}(MAJOR|MINOR|PATCH)(?:_VERSION)?\s+(\d+)", text, re.MULTILINE)
            )
            version = (int(numbers["MAJOR"]), int(numbers["MINOR"]), int(numbers["PATCH"]))
            if (found / needed).is_file():
                return Package(found, version)
    return None


@functools.cache
def nccl_headers() -> Package | None:
    """The first package that has nccl_device.h; None without one."""
    return installed(PACKAGES, "nvidia/nccl/include", "nccl.h", "NCCL_", "nccl_device.h")


def dotted(version: tuple[int, ...]) -> str:
    """ "2.28.9" of (2, 28, 9)."""
    return ".".join(map(str, version))


def unknown(version: Version) -> str:
    """The message for a version without a layout."""
    known = ", ".join(map(dotted, LAYOUTS))
    return f"the layouts of NCCL {dotted(version)}'s structs are not known to the kit; it knows {known}"
