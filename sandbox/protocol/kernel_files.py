"""The files of a kernel of several files: limits, names, one hash over all of them, and how a world gets them.

A kernel of one file has no other files. Every function here then uses its text alone.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

MAIN = "kernel.py"
"""The file of a folder that has `solution`."""
MOST_BYTES = 4 << 20
"""Bytes of all files of a kernel together."""
MOST_FILES = 200
"""Files of a kernel, including `kernel.py`."""
NAME_BYTES = 200
"""Bytes of a file's path in its folder."""
_PART = re.compile(r"[\w+@][\w .+@=-]*", re.ASCII)
_LEFT_OUT = ("__pycache__",)
_UNFINISHED = ("~", ".pyc", ".tmp", ".part")

Files = dict[str, bytes]
"""The files beside kernel.py, by their path in the folder: "ops/reduce.cu"."""


class Kernel(msgspec.Struct, frozen=True):
    """A kernel: the text of its main file, and the files beside it."""

    source: str
    files: Files = {}

    @property
    def sha256(self) -> str:
        """The hash that identifies the kernel: see `kernel_hash`."""
        return kernel_hash(self.source, self.files)

    def with_text(self, text: str, name: str = MAIN) -> "Kernel":
        """The kernel with another text of one of its files, or with one more file."""
        return Kernel(text, self.files) if name == MAIN else Kernel(self.source, {**self.files, name: text.encode()})


def kernel_hash(source: str, files: Mapping[str, bytes]) -> str:
    """SHA-256 of a kernel, as hex. Without other files it is that of the text."""
    if not files:
        return hashlib.sha256(source.encode()).hexdigest()
    digest = hashlib.sha256()
    for name, data in sorted({**files, MAIN: source.encode()}.items()):
        for part in (name.encode(), data):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
    return digest.hexdigest()


def is_left_out(name: str) -> bool:
    """Whether a file or folder of this name is no part of a kernel: hidden, or left by an editor or by Python."""
    return name.startswith(".") or name in _LEFT_OUT or name.endswith(_UNFINISHED)


def is_file_name(name: str) -> bool:
    """Whether a path may name a file beside kernel.py: relative, in the folder, of letters, digits and " .+@=_-"."""
    parts = name.split("/")
    plain = all(_PART.fullmatch(part) and not is_left_out(part) for part in parts)
    return plain and len(name) <= NAME_BYTES and name != MAIN


def fault_in(kernel: Kernel) -> str:
    """Why a kernel of several files is refused; empty if it is not. Its names and sizes are untrusted."""
    if not kernel.files:
        return ""
    if wrong := [name for name in kernel.files if not is_file_name(name)]:
        return f"{wrong[0][:NAME_BYTES]!r} cannot name a file of a kernel"
    if len(kernel.files) + 1 > MOST_FILES:
        return f"the kernel has more than {MOST_FILES} files"
    if len(kernel.source.encode()) + sum(map(len, kernel.files.values())) > MOST_BYTES:
        return f"the kernel has more than {MOST_BYTES >> 20} MiB"
    folders = {str(parent) for name in kernel.files for parent in Path(name).parents}
    if clash := next((name for name in (MAIN, *kernel.files) if name in folders), None):
        return f"{clash!r} is both a file and a folder"
    return ""


def python_texts(kernel: Kernel) -> list[str]:
    """The kernel's Python, main file first."""
    others = [data.decode(errors="replace") for name, data in sorted(kernel.files.items()) if name.endswith(".py")]
    return [kernel.source, *others]


def write_read_only(folder: Path, kernel: Kernel) -> None:
    """Writes a kernel of several files into an empty folder, readable by all users and writable by none.

    Raises:
        ValueError: `fault_in` refuses it.
        OSError: a file could not be written.
    """
    if fault := fault_in(kernel):
        raise ValueError(fault)
    for name, data in {**kernel.files, MAIN: kernel.source.encode()}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o444)
    for below, _, _ in os.walk(folder):
        os.chmod(below, 0o755)  # a world has another uid
