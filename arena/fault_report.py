"""Reports of faults in pkb-arena itself, in a file of the state folder."""

import os
import platform
import re
import traceback
from pathlib import Path

from arena.paths import make_folder

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD")
_SHORTEST = 8
"""Minimum length of a value that is hidden. A shorter one could match ordinary text."""


def without_keys(text: str) -> str:
    """Hides the values of all environment variables that are named like a key."""
    for name, value in os.environ.items():
        if len(value) >= _SHORTEST and _SECRET.search(name):
            text = text.replace(value, f"[{name}]")
    return text


def write_report(path: Path, error: BaseException, doing: str = "") -> str:
    """Writes the traceback of an error without the values of variables, and returns the text.

    doing: what the program did.

    Raises:
        OSError, ArenaError: it was not written.
    """
    from arena.machine.facts import installed_version

    versions = " · ".join(f"{name} {installed_version(name) or '-'}" for name in ("pkb-arena", "textual"))
    head = f"{versions} · Python {platform.python_version()}{f' · {doing}' if doing else ''}\n"
    text = without_keys(head + "".join(traceback.format_exception(error)))
    make_folder(path.parent)
    path.write_text(text, encoding="utf-8", errors="replace")
    path.chmod(0o600)
    return text
