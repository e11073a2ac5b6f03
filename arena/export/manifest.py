"""The manifest of a bundle: the SHA-256 of every file in it."""

import errno
import hashlib
import os
import stat
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import IO

import msgspec

from arena.errors import UsageError, why
from arena.words.untrusted_text import printable

MANIFEST = "manifest.json"
VERSION = 1
MOST_MANIFEST_BYTES = 64 << 20
MOST_BYTES = 64 << 30
"""Most bytes of a bundle that is read."""
_CHUNK = 1 << 20


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """manifest.json."""

    created: float
    """Seconds since the epoch."""
    arena: str
    """Version of pkb-arena."""
    results: int
    files: dict[str, str]
    """SHA-256 by path in the bundle."""
    version: int = VERSION


def write_manifest(folder: Path, created: float, arena: str, results: int) -> Manifest:
    """Writes the manifest of everything in a folder. Raises OSError."""
    files = {str(path.relative_to(folder)): sha256_of(path) for path in sorted(folder.rglob("*")) if path.is_file()}
    manifest = Manifest(created=created, arena=arena, results=results, files=files)
    (folder / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """Reads the manifest of a bundle.

    Raises:
        UsageError: there is none, it cannot be read, or a newer version made it.
    """
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}", "`pkb-arena export DIR` makes a bundle")
    try:
        with open_plain(folder / MANIFEST, MOST_MANIFEST_BYTES) as file:
            manifest = msgspec.json.decode(file.read(MOST_MANIFEST_BYTES) or b"", type=Manifest)
    except (OSError, ValueError, RecursionError) as error:
        fault = "it has no manifest.json" if isinstance(error, FileNotFoundError) else "its manifest.json is damaged"
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            fault = why(error)
        raise UsageError(f"{folder} is no bundle: {fault}", "`pkb-arena export DIR` makes one") from None
    if manifest.version > VERSION:
        raise UsageError(f"{folder} was made by a newer pkb-arena ({printable(manifest.arena)})", "update this one")
    return manifest


def check_files(folder: Path, manifest: Manifest, copies: Mapping[str, Path]) -> None:
    """Reads every file of a bundle once, and copies some. What is compared with the manifest is what was copied.

    copies: new files by path in the bundle.

    Raises:
        UsageError: a file is missing, was changed, is too large or no plain file, or leads out of the folder.
        OSError: a copy cannot be written.
    """
    root, left = folder.resolve(), MOST_BYTES
    for name, digest in manifest.files.items():
        path = folder / name
        try:
            if not path.resolve().is_relative_to(root):
                raise FileNotFoundError
            file = open_plain(path, left)
        except (ValueError, FileNotFoundError):  # a NUL in its name
            raise UsageError(f"{folder}: {printable(name)} is missing", "ask its maker for the whole bundle") from None
        except OSError as error:
            raise UsageError(f"{folder}: {printable(name)}: {why(error)}", "make it readable") from None
        with file, copies[name].open("xb") if name in copies else nullcontext() as copy:
            found, size = _read_through(file, copy, left)
        left -= size
        if found != digest:
            raise UsageError(
                f"{folder}: {printable(name)} is not what the manifest says", "ask its maker for the bundle again"
            )


def open_plain(path: Path, most: int) -> IO[bytes]:
    """Opens a plain file of at most `most` bytes for reading. Never blocks. Raises OSError."""
    if path.is_symlink():
        raise OSError(errno.ELOOP, "no plain file")
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0)
    found = os.fstat(file.fileno())
    if not stat.S_ISREG(found.st_mode) or found.st_size > most:
        file.close()
        raise OSError(errno.EINVAL, f"larger than {most} bytes" if stat.S_ISREG(found.st_mode) else "no plain file")
    return file


def _read_through(file: IO[bytes], copy: IO[bytes] | None, most: int) -> tuple[str, int]:
    """Returns the SHA-256 and the size of what is read, at most `most` bytes, and writes it into the copy."""
    digest, size = hashlib.sha256(), 0
    while chunk := file.read(min(_CHUNK, most - size)):
        digest.update(chunk)
        size += len(chunk)
        if copy is not None:
            copy.write(chunk)
    if copy is not None:
        copy.flush()
        os.fsync(copy.fileno())
    return digest.hexdigest(), size


def sha256_of(path: Path) -> str:
    """Returns the SHA-256 of a file, as hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
