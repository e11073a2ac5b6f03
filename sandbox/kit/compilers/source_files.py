"""Sources and headers in files beside the kernel, and lines of the Python file that contains a source text.

The text is usually a string literal of the kernel file, or several put together, or an f-string. Its lines
are looked up among the file's lines in runs as long as possible, so it does not matter how the text was made.
"""

import linecache
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from sandbox.kit.compilers import build
from sandbox.kit.errors import CompileError

SUFFIXES = (".cu", ".cuh", ".cpp", ".cc", ".cxx", ".c", ".h", ".hpp")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)


class SourceText(NamedTuple):
    """A source to compile."""

    text: str
    located: str
    """The text with `#line` directives for the compiler."""
    path: str
    """The file that these directives name."""
    in_file: bool
    """Whether the text is the whole of `path`; else it is in the Python file that calls the compiler."""
    headers: tuple[str, ...]
    """Texts of the headers beside the kernel that it includes."""
    flags: tuple[str, ...]
    """Options that make the compiler find these headers."""

    @contextmanager
    def readable(self) -> Iterator[None]:
        """A CompileError of this block has the file's base name, and a line if it is in the calling Python file."""
        try:
            yield
        except CompileError as error:
            # An error in a header has a line of the header.
            is_own = not self.in_file and error.message.startswith((f"{os.path.basename(self.path)}:", "<source>:"))
            text = error.text.replace(_escaped(self.path), os.path.basename(self.path))
            raise CompileError(error.message, error.line if is_own else None, text) from None


def read(source: str | os.PathLike[str], frame: FrameType) -> SourceText:
    """Reads a source from its text, or from a path with a suffix of C++ or CUDA. frame: the one that called the kit.

    A relative path is looked up beside the calling file, then in the kernel's folder.

    Raises:
        CompileError: there is no such file.
    """
    beside = Path(frame.f_code.co_filename).parent
    folders = [beside, *([kernel] if (kernel := build.kernel_folder()) else [])]
    if not is_path(source):
        text = str(source)
        located, path = with_line_directives(text, frame)
    else:
        found = next((each / source for each in folders if (each / source).is_file()), None)
        if found is None:
            raise CompileError(f"there is no file {source} beside the kernel")
        text, path = found.read_text(encoding="utf-8"), str(found)
        located = f'#line 1 "{path}"\n{text}'
        folders.insert(0, found.parent)
    headers = _headers(text, folders)
    flags = tuple(dict.fromkeys(f"-I{folder}" for folder in folders)) if headers else ()
    return SourceText(text, located, path, is_path(source), tuple(headers.values()), flags)


def is_path(source: str | os.PathLike[str]) -> bool:
    """Whether this is a path and no text. A C++ source is never a single line with the suffix of a file."""
    return not isinstance(source, str) or (source.endswith(SUFFIXES) and "\n" not in source)


def _headers(text: str, folders: list[Path]) -> dict[Path, str]:
    """The files in these folders that a text includes, directly or through one another."""
    found: dict[Path, str] = {}
    waiting = [(text, folders)]
    while waiting:
        text, places = waiting.pop()
        for name in _INCLUDE.findall(text):
            path = next((place / name for place in places if (place / name).is_file()), None)
            if path is not None and (path := path.resolve()) not in found:
                with suppress(OSError):  # the compiler names what cannot be read
                    found[path] = path.read_text(encoding="utf-8", errors="replace")
                    waiting.append((found[path], [path.parent, *folders]))
    return dict(sorted(found.items()))


def with_line_directives(source: str, frame: FrameType) -> tuple[str, str]:
    """The source with `#line` directives that name the caller's file, and the path of that file.

    frame: the frame that called the kit. Text that is not found in its file keeps its own line numbers under
    the name "<source>".
    """
    path = frame.f_code.co_filename
    file_lines = [line.rstrip("\n") for line in linecache.getlines(path, frame.f_globals)]
    lines = source.split("\n")
    numbers = _align(lines, file_lines)
    if not any(numbers):
        return f'#line 1 "<source>"\n{source}', path
    out: list[str] = []
    expected = 0
    for line, number in zip(lines, numbers, strict=True):
        # A directive inside a macro that continues over lines would break it.
        continues = bool(out) and out[-1].endswith("\\")
        if number != expected and not continues:
            out.append(f'#line {number} "{_escaped(path)}"')
        out.append(line)
        expected = number + 1
    return "\n".join(out), path


def _escaped(path: str) -> str:
    return path.replace("\\", "\\\\").replace('"', '\\"')


def _align(lines: list[str], file_lines: list[str]) -> list[int]:
    """For each source line its 1-based line in the file; all 0 if nothing matches."""
    places: dict[str, list[int]] = defaultdict(list)
    for number, line in enumerate(file_lines):
        places[line].append(number)
    numbers = [0] * len(lines)
    index = 0
    while index < len(lines):
        best, length = -1, 0
        for start in places.get(lines[index], ()):
            run = _run(lines, index, file_lines, start)  # braces and blank lines alone occur everywhere
            if run > length and any(len(line.strip()) > 3 for line in lines[index : index + run]):
                best, length = start, run
        for offset in range(length):
            numbers[index + offset] = best + offset + 1
        index += max(length, 1)
    return _fill_gaps(numbers)


def _run(lines: list[str], index: int, file_lines: list[str], start: int) -> int:
    run = 0
    while index + run < len(lines) and start + run < len(file_lines) and lines[index + run] == file_lines[start + run]:
        run += 1
    return run


def _fill_gaps(numbers: list[int]) -> list[int]:
    """Numbers the lines that differ from the file, such as escapes or f-string fields, by their neighbours."""
    known = [index for index, number in enumerate(numbers) if number]
    if not known:
        return numbers
    for index in range(known[0] - 1, -1, -1):
        numbers[index] = max(numbers[index + 1] - 1, 1)
    for index in range(known[0] + 1, len(numbers)):
        if not numbers[index]:
            numbers[index] = numbers[index - 1] + 1
    return numbers
