"""Compiled kernels that outlive their world. Inside the jail the cache is read-only; what a passing kernel compiled is copied
out afterwards.

A folder per kernel text, chosen by the referee: what lies in it was made in worlds that ran that very text, and only worlds
that run it look there (sandbox/kit/build.py). So a kernel can plant a binary for itself, and for nobody else.
"""

import contextlib
import os
import re
import shutil
import stat
from pathlib import Path

ARTEFACT = re.compile(r"[A-Za-z0-9_.-]{8,120}\.(so|cubin)")
MAX_BYTES = 64 << 20
MAX_FILES = 64
KEPT_KERNELS = 256
"""Folders; the least recently filled go first."""


def directory() -> Path:
    """Where artefacts are kept: PKB_KERNEL_CACHE, as the engine sets it, or the user's cache folder."""
    named = os.environ.get("PKB_KERNEL_CACHE")
    return (
        Path(named)
        if named
        else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pkb-arena" / "kernels"
    )


def prepared() -> Path | None:
    """The directory, made if need be; None where it cannot be made (then every world compiles for itself)."""
    folder = directory()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
    except OSError:
        return None
    return folder


def harvest(pid: int, inside: Path, kernel: str) -> int:
    """Copies what a jailed process has compiled into the cache; returns how many files.

    kernel: SHA-256 of the only text that this world has run; pid: a process of the world, whose view of the file system is
    read; inside: its $TMPDIR there. Only regular files with an artefact's name are looked at, links never followed.
    """
    cache = prepared()
    if cache is None:
        return 0
    copied = 0
    folder = cache / kernel
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/root{inside}"):
            if entry.name.startswith("pkb-kernels") and copied < MAX_FILES:
                folder.mkdir(exist_ok=True, mode=0o755)
                copied += _collect(entry.path, folder, MAX_FILES - copied)
    _prune(cache)
    return copied


def _prune(cache: Path) -> None:
    """Takes away what was filled longest ago. A world that has one of these open keeps what it has loaded."""
    with contextlib.suppress(OSError):
        folders = [entry for entry in os.scandir(cache) if entry.is_dir(follow_symlinks=False)]
        folders.sort(key=lambda entry: entry.stat(follow_symlinks=False).st_mtime, reverse=True)
        for entry in folders[KEPT_KERNELS:]:
            shutil.rmtree(entry.path, ignore_errors=True)


def _collect(path: str, cache: Path, most: int) -> int:
    """Copies the artefacts of one folder. By descriptor: a kernel could turn a path into a link between two uses of it."""
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return 0
    try:
        names = sorted(name for name in os.listdir(folder) if ARTEFACT.fullmatch(name))
        fresh = [name for name in names[: 4 * MAX_FILES] if not (cache / name).exists()]
        return sum(_copy(folder, name, cache / name) for name in fresh[:most])
    finally:
        os.close(folder)


def _copy(folder: int, name: str, target: Path) -> bool:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return False
    with os.fdopen(fd, "rb") as file:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > MAX_BYTES:
            return False
        unfinished = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            with unfinished.open("wb") as out:
                shutil.copyfileobj(file, out, 1 << 20)
            unfinished.chmod(0o755)
            unfinished.replace(target)
        except OSError:
            unfinished.unlink(missing_ok=True)
            return False
    return True
