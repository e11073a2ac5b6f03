"""Builds an artefact once per world and caches it by content hash.

The first rank holds a file lock while it builds. The others block on the lock and load the same file. A lock ends with its
holder, so a crashed rank does not block the others.

Environment: PKB_KERNEL_CACHE is the cache directory. It has a folder per kernel text, so that no kernel loads an
artefact of another. If it is read-only, new artefacts go to $TMPDIR/pkb-kernels-<uid>. A harness mounts it read-only,
so that no kernel can plant an artefact for a later one.
"""

import fcntl
import hashlib
import importlib.util
import json
import linecache
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

from sandbox.kit.compilers import compiling
from sandbox.kit.errors import CompileError
from sandbox.machine import kernel_cache

TIMEOUT_S = 120.0
"""Limit for one run of gcc or nvcc."""
WAIT_S = 600.0
"""Limit for a rank's wait for another rank's build. An extension through nvcc takes longest."""


class CompiledModule:
    """A compiled source. Its attributes are the functions or kernels that it exports."""

    def __init__(self, exported: dict[str, Any], path: Path, kind: str) -> None:
        """kind: the word for an exported function or kernel in messages."""
        self.path = path
        self._known = f"no {kind} {{}} in this source; it has: {', '.join(exported)}"
        self.__dict__.update(exported)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(self._known.format(name))


def content_key(*parts: str) -> str:
    """The hash that names an artefact. The lengths of parts count, so that ("ab", "c") and ("a", "bc") differ."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()[:40]


def cache_dir() -> Path:
    """The first folder in which artefacts of the loaded kernel are looked up."""
    return kernel_cache.directory() / _kernel_digest()


kernel_digest = ""
"""SHA-256 of the kernel that this rank loads if it has several files; empty for a kernel of one file."""


def _kernel_digest() -> str:
    """SHA-256 of the kernel that this rank has loaded; empty if there is none, as in a test."""
    if kernel_digest:
        return kernel_digest
    path = getattr(sys.modules.get("kernel"), "__file__", None)
    text = "".join(linecache.getlines(path)) if path else ""
    return hashlib.sha256(text.encode()).hexdigest() if text else ""


def kernel_folder() -> Path | None:
    """The folder of the kernel that this rank has loaded, if it has several files."""
    places = list(getattr(sys.modules.get("kernel"), "__path__", []))
    return Path(places[0]) if places else None


def _writable_dir() -> Path:
    preferred = cache_dir()
    try:
        preferred.mkdir(parents=True, exist_ok=True)
        if os.access(preferred, os.W_OK):
            return preferred
    except OSError:
        pass
    fallback = Path(tempfile.gettempdir()) / f"pkb-kernels-{os.getuid()}"
    fallback.mkdir(mode=0o700, exist_ok=True)
    if fallback.stat().st_uid != os.getuid():
        raise CompileError(f"{fallback} belongs to another user; set PKB_KERNEL_CACHE to a directory of your own")
    return fallback


def once(name: str, make: Callable[[Path], None], *, shown: bool = True) -> Path:
    """The artefact `name`, built by `make(path)` if no cache has it yet.

    make(path) writes the artefact, and raises CompileError if it cannot; every rank that waited for that build
    raises the same error. shown: whether the harness's compile hooks are called.
    """
    cached = cache_dir() / name
    if cached.exists():
        return cached
    directory = _writable_dir()
    artefact = directory / name
    if artefact.exists():
        return artefact
    asked = time.time_ns()
    failure = directory / f"{name}.error"
    with compiling.shown() if shown else nullcontext(), open(directory / f"{name}.lock", "w") as lock:
        _lock(lock.fileno(), name)
        if artefact.exists():
            return artefact
        # A failure that was recorded while this rank waited is this build's. An older one is stale, so the build is
        # tried again.
        if failure.exists() and failure.stat().st_mtime_ns >= asked:
            raise CompileError(*json.loads(failure.read_text()))
        _make(artefact, failure, make)
    return artefact


def import_extension(name: str, file: Path) -> ModuleType:
    """Imports a built extension module from its file. Raises ImportError."""
    specification = importlib.util.spec_from_file_location(name, file)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def _make(artefact: Path, failure: Path, make: Callable[[Path], None]) -> None:
    unfinished = artefact.with_name(f"{artefact.name}.{os.getpid()}")
    try:
        make(unfinished)
        os.replace(unfinished, artefact)
    except CompileError as error:
        failure.write_text(json.dumps([error.message, error.line, error.text]))
        raise
    finally:
        unfinished.unlink(missing_ok=True)


def _lock(fd: int, name: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise CompileError(f"another rank is still compiling {name} after {WAIT_S:.0f} s") from None
            time.sleep(0.002)
