"""Adds marks under today's code hash for kernels that older versions voided under another hash."""

from pathlib import Path

from msgspec.structs import replace

from arena.records.code_hash import code_hash, old_code_hashes
from arena.records.header import RunHeader
from arena.records.voids import append_void, read_voids


class RenamedVoids:
    """Checks run after run. A mark that was taken back under today's hash is not repeated."""

    def __init__(self, path: Path) -> None:
        """path: the journal of voids.

        Raises:
            PathRefused: it cannot be read.
        """
        voids = read_voids(path)
        self._path, self._kernels, self._named = path, voids.kernels, set(voids.named)

    def take(self, header: RunHeader) -> None:
        """Repeats the mark on this run's kernel under today's hash, if only an older hash has one.

        Raises:
            FolderUnwritable: the mark could not be added.
        """
        if not self._kernels:
            return
        old = old_code_hashes(header.source, header.files) & self._kernels.keys()
        if not old:
            return
        code = code_hash(header.source, header.files)
        if code not in self._named:
            self._named.add(code)
            append_void(self._path, replace(self._kernels[min(old)], code=code))
