"""Sources and headers in files beside the kernel."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from sandbox.kit.compilers import build, source_lines
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
            with source_lines.readable(self.path):
                yield
        except CompileError as error:
            # An error in a header has a line of the header.
            is_own = not self.in_file and error.message.startswith((f"{os.path.basename(self.path)}:", "<source>:"))
            raise CompileError(error.message, error.line if is_own else None, error.text) from None


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
        located, path = source_lines.with_line_directives(text, frame)
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
