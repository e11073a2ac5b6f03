"""Stores the newest profile of every kernel as a short text, for models that improve the kernel."""

import time
from pathlib import Path

from arena.errors import why
from arena.paths import Paths, make_folder
from arena.profile import gpu_words
from arena.profile.messages import Profiled, ProfileRequest
from arena.profile.rules import first_failure, under_profiler
from arena.workspace.atomic_file import write_atomically
from sandbox.protocol.kernel_files import kernel_hash


def profile_text(found: Profiled) -> str:
    """Returns the diagnosis of each rank, with its figures."""
    if not found.gpu_figures:
        told = [f"rank {rank.rank}: {rank.call_us:.0f} µs a call. {rank.diagnosis}" for rank in found.figures]
        return "\n".join([under_profiler(found.figures), *told])
    ranks = found.gpu_figures
    lines = [f"the driver's counters: {gpu_words.row_words(found.outside)}", gpu_words.TRUSTED_HEAD]
    lines += [gpu_words.trusted_row(rank) for rank in ranks]
    lines += [line for line in [gpu_words.power_line(ranks)] if line]
    lines += [gpu_words.under_profiler(ranks), gpu_words.SEEN_HEAD, *map(gpu_words.seen_row, ranks)]
    lines += [f"rank {rank.rank}: {rank.diagnosis}" for rank in ranks]
    return "\n".join([*lines, *gpu_words.advice_lines(ranks)])


def keep_profile(paths: Paths, request: ProfileRequest, found: Profiled) -> str:
    """Stores a profile unless a rank failed. Returns the error if it could not be stored, else ""."""
    if first_failure(found.reports) is not None:
        return ""
    setting = request.setting
    head = f"{setting.preset} {setting.dtype} world {setting.world} {setting.device}"
    path = _path(paths, kernel_hash(request.source, request.files))
    try:
        make_folder(path.parent)
        write_atomically(path, f"{head}\n{profile_text(found)}\n".encode())
    except OSError as error:
        return f"the profile was not kept: {path}: {why(error)}"
    return ""


def ncu_file(paths: Paths, problem: str, request: ProfileRequest) -> Path:
    """Returns the path for a new report of Nsight Compute, and creates its folder.

    Raises:
        FolderUnwritable: the folder cannot be created or written.
    """
    revision = kernel_hash(request.source, request.files)[:8]
    return make_folder(paths.profiles) / f"{problem}-{revision}-{time.strftime('%Y%m%d-%H%M%S')}.ncu-rep"


def kept_profile(paths: Paths, sha256: str) -> str:
    """Returns the stored profile of a kernel, with the setting in its first line; empty if there is none."""
    try:
        return _path(paths, sha256).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def _path(paths: Paths, sha256: str) -> Path:
    return paths.profiles / "kernels" / f"{sha256}.txt"
