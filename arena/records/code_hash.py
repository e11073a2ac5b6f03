"""Hashes a kernel's code, equally on all versions of Python. Voids, pooled measurements and sweeps store this hash."""

import functools
import hashlib
import io
import tokenize
from collections.abc import Callable, Iterable

from arena.records.python_tokens import OPERATOR, python_tokens
from sandbox.protocol.kernel_files import Files, kernel_hash

_OPERATOR_SINCE_3_12 = 55
_NO_CODE = (tokenize.COMMENT, tokenize.NL)
_LAYOUT = (tokenize.INDENT, tokenize.DEDENT, tokenize.NEWLINE, tokenize.ENDMARKER)


def code_hash(source: str, files: Files | None = None) -> str:
    """Returns a hash that is equal for files that differ only in comments, blank lines and layout.

    A text that is not Python is hashed as a whole.

    files: the other files of a kernel of several files. Only the Python files among them are hashed in this way.
    """
    return _hash_of(_code_of, source, files)


def old_code_hashes(source: str, files: Files | None = None) -> set[str]:
    """Returns the hashes that older versions of pkb-arena gave this code, on this version of Python or a newer one."""
    return {_hash_of(code_of, source, files) for code_of in (_code_by_this_python, _code_by_newer_pythons)}


def _hash_of(code_of: Callable[[str], str], source: str, files: Files | None) -> str:
    if not files:
        return code_of(source)
    texts = {name: data.decode(errors="replace") for name, data in files.items() if name.endswith(".py")}
    return kernel_hash(code_of(source), files | {name: code_of(text).encode() for name, text in texts.items()})


@functools.lru_cache(maxsize=512)
def _code_of(source: str) -> str:
    try:
        return _digest(ascii(python_tokens(source)))  # which characters `repr` escapes depends on the version
    except ValueError:
        return _digest(source)


def _code_by_this_python(source: str) -> str:
    try:
        tokens: Iterable[tuple[int, str]] = [
            (token.type, "" if token.type in _LAYOUT else token.string)
            for token in tokenize.generate_tokens(io.StringIO(source).readline)
            if token.type not in _NO_CODE
        ]
    except (tokenize.TokenError, SyntaxError):
        return _digest(source)
    return _digest(repr(tokens))


def _code_by_newer_pythons(source: str) -> str:
    """The hash by Python 3.12 and newer; right only without f-strings, which these versions split."""
    try:
        tokens = python_tokens(source)
    except ValueError:
        return _digest(source)
    return _digest(repr([(_OPERATOR_SINCE_3_12 if kind == OPERATOR else kind, text) for kind, text in tokens]))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
