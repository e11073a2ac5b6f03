"""Compiled kernels that outlive their world. Inside the jail the cache is read-only; what a passing kernel compiled is copied
out afterwards.

An artefact is named by the hash of its source, and was made by whoever asked first: a hostile kernel could leave another
source's artefact behind. That gains it nothing that it could not do itself, for every run is judged on fresh inputs.
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


def harvest(pid: int, inside: Path) -> int:
    """Copies what a jailed process has compiled into the cache; returns how many files.

    pid: a process of the world, whose view of the file system is read; inside: its $TMPDIR there. Only regular files with an
    artefact's name are looked at, links never followed.
    """
    cache = prepared()
    if cache is None:
        return 0
    copied = 0
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/root{inside}"):
            if entry.name.startswith("pkb-kernels") and copied < MAX_FILES:
                copied += _collect(entry.path, cache, MAX_FILES - copied)
    return copied


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
