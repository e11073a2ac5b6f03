"""The version of a problem: a digest of the files that define its inputs, baseline and checks."""

import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path

import problems
from problems.specification import Problem

_FILES = ("problem.toml", "inputs.py", "baseline.py")
_SHARED = Path(problems.__path__[0])


def version_of(problem: Problem) -> str:
    """Twelve characters that change with the problem's sizes, inputs, baseline or checks, and not with its card.

    Raises:
        OSError: a file of it cannot be read.
    """
    return _digest([_shared().encode(), *((problem.folder / name).read_bytes() for name in _FILES)])


@functools.cache
def _shared() -> str:
    """Of what problems have in common."""
    return _digest(path.read_bytes() for path in sorted((_SHARED / "shared").rglob("*.py")))


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:12]
