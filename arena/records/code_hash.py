"""Hashes a kernel's code. Voids, pooled measurements and sweeps store this hash."""

import functools
import hashlib
import io
import tokenize

from sandbox.protocol.kernel_files import Kernel, kernel_hash

LONGEST = 1 << 18
"""Most characters of a text that is read as Python. Comments of a longer one count: 4 MiB of one bracket took seconds."""


def code_hash(kernel: Kernel | str) -> str:
    """Returns a hash that is equal for texts that differ only in blank lines and in lines with nothing but a comment.

    Only the Python files of a kernel of several files are hashed in this way.
    """
    if isinstance(kernel, str) or not kernel.files:
        return _code_of(kernel if isinstance(kernel, str) else kernel.source)
    texts = {name: data.decode(errors="replace") for name, data in kernel.files.items() if name.endswith(".py")}
    codes = {name: _code_of(text).encode() for name, text in texts.items()}
    return kernel_hash(_code_of(kernel.source), kernel.files | codes)


@functools.lru_cache(maxsize=512)
def _code_of(source: str) -> str:
    lines = source.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    comments = _comment_lines(lines) if len(source) <= LONGEST else set()
    code = "\n".join(line.rstrip() for row, line in enumerate(lines, 1) if line.strip() and row not in comments)
    return hashlib.sha256(code.encode(errors="surrogatepass")).hexdigest()


def _comment_lines(lines: list[str]) -> set[int]:
    """Returns the numbers, from 1, of lines with a comment alone: not those inside a string, such as "#define" of C."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO("\n".join(lines)).readline))
    except (tokenize.TokenError, SyntaxError, UnicodeError):  # no Python: its comments count
        return set()
    comments = [token.start for token in tokens if token.type == tokenize.COMMENT]
    return {row for row, column in comments if not lines[row - 1][:column].strip()}
