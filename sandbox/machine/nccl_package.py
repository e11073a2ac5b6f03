"""The installed NCCL package: its version, its headers for device code, and the layouts of its structs. Imports no torch."""

import functools
import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

PACKAGES = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")
_VERSION = re.compile(r"^#define NCCL_(MAJOR|MINOR|PATCH)\s+(\d+)", re.MULTILINE)

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


class NcclHeaders(NamedTuple):
    """Headers that come with an NCCL package."""

    folder: Path
    version: Version


@functools.cache
def nccl_headers() -> NcclHeaders | None:
    """The headers of the first package that has nccl_device.h; None without one."""
    for package in PACKAGES:
        try:
            folder = Path(str(metadata.distribution(package).locate_file("nvidia/nccl/include")))
            if not (folder / "nccl_device.h").is_file():
                continue
            numbers = dict(_VERSION.findall((folder / "nccl.h").read_text(encoding="utf-8", errors="replace")))
            return NcclHeaders(folder, (int(numbers["MAJOR"]), int(numbers["MINOR"]), int(numbers["PATCH"])))
        except (metadata.PackageNotFoundError, OSError, KeyError):
            continue
    return None


def dotted(version: Version) -> str:
    """ "2.28.9" of (2, 28, 9)."""
    return ".".join(map(str, version))


def unknown(version: Version) -> str:
    """The message for a version without a layout."""
    known = ", ".join(map(dotted, LAYOUTS))
    return f"the layouts of NCCL {dotted(version)}'s structs are not known to the kit; it knows {known}"
