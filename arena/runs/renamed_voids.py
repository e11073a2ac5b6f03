"""Voids of kernels whose code older versions named otherwise: the same mark is added under the name of today."""

from pathlib import Path

from msgspec.structs import replace

from arena.runs.code_hash import code_hash, old_code_hashes
from arena.runs.journal import RunHeader
from arena.runs.voids import append_void, read_voids


class RenamedVoids:
    """Takes one run after another. A mark that was taken back under the name of today stays so."""

    def __init__(self, path: Path) -> None:
        """path: the journal of voids.

        Raises:
            PathRefused: it cannot be read.
        """
        voids = read_voids(path)
        self._path, self._kernels, self._named = path, voids.kernels, set(voids.named)

    def take(self, header: RunHeader) -> None:
        """Raises FolderUnwritable: a mark could not be added."""
        if not self._kernels:
            return
        old = old_code_hashes(header.source, header.files) & self._kernels.keys()
        if not old:
            return
        code = code_hash(header.source, header.files)
        if code not in self._named:
            self._named.add(code)
            append_void(self._path, replace(self._kernels[min(old)], code=code))
