"""Kernels of several files: a folder with kernel.py, and with its modules, C++ and CUDA sources."""

import os
import secrets
import shutil
import stat
from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import lru_cache
from pathlib import Path

from arena.errors import UsageError
from arena.paths import write_atomically
from sandbox.protocol.kernel_files import MAIN, MOST_BYTES, MOST_FILES, Files, Kernel, is_file_name, is_left_out


def _lines(text: str) -> list[str]:
    """Splits text into lines without line ends: one line more than there are line ends."""
    lines = f"{text}|".splitlines()
    lines[-1] = lines[-1][:-1]
    return lines


def plain(text: str) -> str:
    """Returns the text with \\n for every line end."""
    return "\n".join(_lines(text))


@lru_cache(maxsize=4)
def with_line_ends(text: str, model: str) -> str:
    """Returns `text`: its lines get the line ends they have in `model`, new lines the most common one."""
    lines, old = _lines(text), _lines(model)
    ends = [row[len(line) :] for row, line in zip(model.splitlines(keepends=True), old, strict=False)]
    usual = Counter(filter(None, ends)).most_common(1)
    common = usual[0][0] if usual else "\n"
    found = [common] * len(lines)
    if len(set(ends) - {""}) > 1:
        matcher = SequenceMatcher(None, old, lines, autojunk=False)
        for _, first, last, start, stop in matcher.get_opcodes():  # edited lines keep their line ends, too
            kept = ends[first:last][: stop - start]
            found[start : start + len(kept)] = [end or common for end in kept]
    found[-1] = ""
    return "".join(line + end for line, end in zip(lines, found, strict=True))


ADVICE = f"a kernel's folder has at most {MOST_FILES} files and {MOST_BYTES >> 20} MiB, of plain files and folders"


def is_kernel_folder(path: Path) -> bool:
    """Returns whether a folder contains a kernel of several files."""
    return (path / MAIN).is_file()


def main_file(path: Path) -> Path:
    """Returns the file with `solution`: kernel.py in a folder, else the file itself."""
    return path / MAIN if path.is_dir() else path


def shown_name(path: Path) -> str:
    """Returns a kernel's name in results: "kernel.py", "two_shot/kernel.py", or "./baseline", for the word is the problem's."""
    from arena.workspace.named_kernels import BASELINE  # loads the catalogue, for which the first paint must not wait

    name = f"{path.absolute().name}/{MAIN}" if path.is_dir() else path.name
    return f"./{name}" if name == BASELINE else name


def listed_name(path: Path) -> str:
    """Returns a kernel's name in a list: "two-shot", or "two-shot/" for a folder."""
    return path.stem if path.suffix == ".py" else f"{path.name}/"


def texts_of(kernel: Kernel) -> dict[str, str]:
    """Returns the texts of a kernel's files for display, kernel.py first. For a binary file: its size."""
    texts = {MAIN: kernel.source}
    for name, data in sorted(kernel.files.items()):
        try:
            texts[name] = data.decode()
        except UnicodeDecodeError:
            texts[name] = f"({len(data)} bytes, no text)"
    return texts


def shown_text(kernel: Kernel) -> str:
    """Joins all files of a kernel into one text for display. A line with its path precedes each but kernel.py."""
    first, *others = texts_of(kernel).items()
    return first[1] + "".join(f"\n\n==> {name} <==\n{text}" for name, text in others)


def other_files(folder: Path) -> Files:
    """Returns the files beside kernel.py by their path in the folder, without hidden files and __pycache__.

    Raises:
        UsageError: too many or too large files, a link out of the folder, no regular file, or an invalid name.
        OSError: a file cannot be read.
    """
    files: Files = {}
    room = MOST_BYTES
    inside = folder.resolve()
    for path in _paths(folder):
        name = path.relative_to(folder).as_posix()
        if not path.resolve().is_relative_to(inside):
            raise UsageError(f"{path} is a link out of the kernel's folder", "copy the file into the folder")
        if name == MAIN:
            continue
        if not is_file_name(name):
            raise UsageError(f"{path} cannot be part of a kernel: its name", "use letters, digits, and . _ - + @ =")
        if not stat.S_ISREG(path.stat().st_mode):
            raise UsageError(f"{path} is no plain file", "move it out of the kernel's folder")
        with path.open("rb") as file:
            files[name] = file.read(room + 1)
        room -= len(files[name])
        if room < 0 or len(files) + 1 > MOST_FILES:
            what = f"more than {MOST_BYTES >> 20} MiB" if room < 0 else f"more than {MOST_FILES} files"
            raise UsageError(f"{folder} has {what}", ADVICE)
    return files


def _paths(folder: Path) -> Iterator[Path]:
    """Yields the files below a folder in a fixed order.

    Raises:
        UsageError: a link to a folder.
        OSError: a folder cannot be read.
    """
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if is_left_out(entry.name):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _paths(Path(entry.path))
        elif entry.is_dir():
            raise UsageError(f"{entry.path} is a link to a folder", "copy the folder's files into the kernel's folder")
        else:
            yield Path(entry.path)


def write_folder(folder: Path, kernel: Kernel, mode: int = 0o600) -> None:
    """Writes a kernel of several files as a new folder, atomically: all of its files or none.

    Raises:
        OSError: the folder was not created.
    """
    unfinished = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.part")
    files = {unfinished / name: data for name, data in {**kernel.files, MAIN: kernel.source.encode()}.items()}
    try:
        for parent in sorted({each for path in files for each in path.parents if not each.exists()}):
            parent.mkdir(mode=0o755 if mode & 0o044 else 0o700)  # `parents=True` ignores the mode
        for path, data in files.items():
            write_atomically(path, data, mode)
        unfinished.rename(folder)
    except OSError:
        shutil.rmtree(unfinished, ignore_errors=True)
        if not is_kernel_folder(folder):  # else another process has written the same kernel
            raise
