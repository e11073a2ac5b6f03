"""Hashes a kernel's code. Voids, pooled measurements and sweeps store this hash."""

import functools
import hashlib
import io
import tokenize

from sandbox.protocol.kernel_files import Files, kernel_hash


def code_hash(source: str, files: Files | None = None) -> str:
    """Returns a hash that is equal for texts that differ only in blank lines and in lines with nothing but a comment.

    files: the other files of a kernel of several files. Only the Python files among them are hashed in this way.
    """
    if not files:
        return _code_of(source)
    texts = {name: data.decode(errors="replace") for name, data in files.items() if name.endswith(".py")}
    return kernel_hash(_code_of(source), files | {name: _code_of(text).encode() for name, text in texts.items()})


@functools.lru_cache(maxsize=512)
def _code_of(source: str) -> str:
    lines = source.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    comments = _comment_lines(lines)
    code = "\n".join(line.rstrip() for row, line in enumerate(lines, 1) if line.strip() and row not in comments)
    return hashlib.sha256(code.encode(errors="surrogatepass")).hexdigest()


def _comment_lines(lines: list[str]) -> set[int]:
    """Returns the numbers, from 1, of lines with a comment alone: not those inside a string, such as "#define" of C."""
    found = set()
    try:
        for token in tokenize.generate_tokens(io.StringIO("\n".join(lines)).readline):
            row, column = token.start
            if token.type == tokenize.COMMENT and not lines[row - 1][:column].strip():
                found.add(row)
    except (tokenize.TokenError, SyntaxError, UnicodeError):  # no Python: its comments count
        return set()
    return found
