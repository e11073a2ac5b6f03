"""Maps a compiled source text back to the lines of the Python file that contains it.

The text is usually a string literal of the kernel file, or several put together, or an f-string. Its lines
are looked up among the file's lines in runs as long as possible, so it does not matter how the text was made.
"""

import linecache
import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from sandbox.kit.errors import CompileError


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


@contextmanager
def readable(path: str) -> Iterator[None]:
    """In a CompileError of this block, the compiler's output has the base name of the caller's file."""
    try:
        yield
    except CompileError as error:
        text = error.text.replace(_escaped(path), os.path.basename(path))
        raise CompileError(error.message, error.line, text) from None


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
            run = _run(lines, index, file_lines, start)
            if run > length and _telling(lines[index : index + run]):
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


def _telling(lines: list[str]) -> bool:
    """Whether a run of lines identifies a place in the file. Braces and blank lines occur everywhere."""
    return any(len(line.strip()) > 3 for line in lines)


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
