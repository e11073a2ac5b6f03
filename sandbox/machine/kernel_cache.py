"""The cache of compiled kernels. Files that a passing kernel compiled are copied out of its world.

There is one folder per kernel text, filled from worlds that ran exactly this text. A world can read only the folder of
its own text (`show`). So a kernel can plant a binary only for itself, and cannot read what others have compiled.
"""

import contextlib
import itertools
import os
import platform
import re
import shutil
import stat
from pathlib import Path

ARTEFACT = re.compile(r"[A-Za-z0-9_.-]{8,120}\.(so|cubin)")
MAX_BYTES = 64 << 20
"""Limit for one file."""
MAX_KERNEL_BYTES = 256 << 20
MAX_FILES = 64
MAX_ENTRIES = 1024
"""Most entries of a world's folder that are read. A kernel can make a million, and the referee reads them between orders."""
MAX_TOTAL_BYTES = 4 << 30
KEPT_KERNELS = 256
"""Folders that are kept; the least recently filled are deleted first."""
BLOCK = 512
"""Unit of st_blocks in bytes. A sparse file takes less on disk than its size."""
ELF, ELF_BYTES = b"\x7fELF\x02\x01", 64
CUDA = 190
SHARED = "kit"
"""The folder of files built outside worlds from this program's own sources. Worlds read it and never fill it."""
MACHINES = {"x86_64": 62, "aarch64": 183}
"""ELF machine numbers by platform.machine()."""


def directory() -> Path:
    """The folder of artefacts: PKB_KERNEL_CACHE, which the engine sets, or the user's cache folder."""
    named, base = os.environ.get("PKB_KERNEL_CACHE"), os.environ.get("XDG_CACHE_HOME")
    return Path(named) if named else Path(base or Path.home() / ".cache") / "pkb-arena" / "kernels"


def prepared() -> Path | None:
    """The directory, created if missing; None if that fails. Then every world compiles for itself."""
    folder = directory()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
    except OSError:
        return None
    return folder


def shared() -> Path:
    """The folder of files that all kernels may use."""
    return directory() / SHARED


def show(kernel: str, shown: Path) -> None:
    """Links the artefacts of one text (its SHA-256), or those of SHARED, into a folder that a world can read."""
    with contextlib.suppress(OSError):
        found = [entry for entry in os.scandir(directory() / kernel) if ARTEFACT.fullmatch(entry.name)]
        target = shown / kernel
        target.mkdir(exist_ok=True, mode=0o755)
        for entry in found:
            try:
                os.link(entry.path, target / entry.name)
            except FileExistsError:
                continue
            except OSError:  # another disk
                shutil.copy(entry.path, target / entry.name)


def harvest(pid: int, inside: Path, kernel: str) -> int:
    """Copies what a jailed process has compiled into the cache; returns how many files.

    pid: a process of the world, whose file system is read. inside: its $TMPDIR there. kernel: SHA-256 of the only text that
    this world has run. Only the folder that sandbox.kit.compilers.build uses is read, and at most MAX_ENTRIES of it. Only
    regular files with the name and content of an artefact are copied; links are not followed.
    """
    cache = prepared()
    if cache is None:
        return 0
    copied = 0
    with contextlib.suppress(OSError):
        built = f"/proc/{pid}/root{inside}/pkb-kernels-{os.stat(f'/proc/{pid}').st_uid}"
        copied = _collect(built, cache / kernel)
    _prune(cache)
    return copied


def _taken(folder: Path | str) -> int:
    """Bytes on disk of the files in a folder."""
    with contextlib.suppress(OSError):
        return sum(entry.stat(follow_symlinks=False).st_blocks * BLOCK for entry in os.scandir(folder))
    return 0


def _prune(cache: Path) -> None:
    """Deletes the least recently filled folders beyond the limits."""
    with contextlib.suppress(OSError):
        folders = [entry for entry in os.scandir(cache) if entry.is_dir(follow_symlinks=False)]
        folders.sort(key=lambda entry: entry.stat(follow_symlinks=False).st_mtime, reverse=True)
        total = 0
        for number, entry in enumerate(folders):
            total += _taken(entry.path)
            if number >= KEPT_KERNELS or total > MAX_TOTAL_BYTES:
                shutil.rmtree(entry.path, ignore_errors=True)


def _collect(path: str, cache: Path) -> int:
    """Copies the artefacts of one folder. It uses descriptors, because a kernel could replace a path by a link meanwhile.

    Raises OSError if there is no such folder.
    """
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        cache.mkdir(exist_ok=True, mode=0o755)
        with os.scandir(folder) as entries:
            found = [entry.name for entry in itertools.islice(entries, MAX_ENTRIES)]
        fresh = sorted(name for name in found if ARTEFACT.fullmatch(name) and not (cache / name).exists())
        room = MAX_KERNEL_BYTES - _taken(cache)
        copied = 0
        for name in fresh[:MAX_FILES]:
            size = _copy(folder, name, cache / name, min(room, MAX_BYTES))
            room -= size
            copied += size > 0
        return copied
    finally:
        os.close(folder)


def _copy(folder: int, name: str, target: Path, most: int) -> int:
    """Copies one file; returns its bytes on disk, 0 if it is refused. most: bytes that it may have."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return 0
    with os.fdopen(fd, "rb") as file:
        facts = os.fstat(fd)
        sparse = facts.st_blocks * BLOCK < facts.st_size
        if not stat.S_ISREG(facts.st_mode) or sparse or facts.st_size > most:
            return 0
        data = file.read(facts.st_size)  # no more, even if the file grows meanwhile
        if not is_code(data[:ELF_BYTES], target.suffix):
            return 0
        with contextlib.suppress(OSError):
            put(target, data)
            return target.stat().st_blocks * BLOCK
        return 0


def put(target: Path, data: bytes) -> None:
    """Writes a file of the cache as a whole, for all users. Raises OSError."""
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        unfinished.write_bytes(data)
        unfinished.chmod(0o755)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def is_code(head: bytes, suffix: str) -> bool:
    """Whether the first bytes are those of a 64-bit ELF file for this processor, or for a GPU if the suffix is .cubin."""
    if len(head) < ELF_BYTES or not head.startswith(ELF):
        return False
    machine = int.from_bytes(head[18:20], "little")
    return machine == (CUDA if suffix == ".cubin" else MACHINES.get(platform.machine(), machine))
