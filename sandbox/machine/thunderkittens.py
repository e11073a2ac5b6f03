"""The checkout of ThunderKittens that kernels are compiled with: where it is, and what it lacks. Imports no torch.

Kernels read its headers only. They are not part of this program: the user names a checkout.
"""

import os
from functools import cache
from pathlib import Path

VARIABLE = "THUNDERKITTENS_ROOT"
"""Environment variable with the path of a checkout, the same as in the publication's harness."""
HEADER = "include/kittens.cuh"
FOLDERS = ("include", "prototype")
"""The folders of a checkout that a world may read."""
_GIT_S = 5.0


def named() -> Path | None:
    """The folder that the environment names; None without one."""
    path = os.environ.get(VARIABLE)
    return Path(path).expanduser().absolute() if path else None


def name(path: str) -> None:
    """Names a checkout for this process and those that it starts, unless the environment names one. path: empty for none."""
    if path and not os.environ.get(VARIABLE):
        os.environ[VARIABLE] = path


def checkout() -> Path | None:
    """The checkout, its links resolved; None if none is named, or it has no headers."""
    root = named()
    return root.resolve() if root is not None and not lacking(root) else None


def lacking(root: Path) -> str:
    """What a folder lacks to be a checkout, in one line; empty if it lacks nothing."""
    if not root.is_dir():
        return f"{root} is not a folder that can be read"
    if not os.access(root / HEADER, os.R_OK):
        return f"{root} has no {HEADER} that can be read"
    return "" if (root / "prototype").is_dir() else f"{root} has no folder prototype"


def why_missing() -> str:
    """Why there is no checkout, in one line; empty if there is one."""
    root = named()
    if root is None:
        return f"ThunderKittens is not here: {VARIABLE} names no checkout"
    lacks = lacking(root)
    return f"{VARIABLE}: {lacks}" if lacks else ""


def shown(root: Path) -> list[Path]:
    """The folders of a checkout that a world reads."""
    return [root / folder for folder in FOLDERS]


def commit(root: Path) -> str:
    """The commit of a checkout as 12 digits; empty for a copy without git's folder. Takes milliseconds."""
    if not (root / ".git").exists():
        return ""  # git would find a repository around it
    import subprocess

    command = ["git", "-c", "safe.directory=*", f"--git-dir={root / '.git'}", "rev-parse", "HEAD"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_GIT_S, check=True
        )
    except (subprocess.SubprocessError, OSError, UnicodeDecodeError):
        return ""
    return done.stdout.strip()[:12]


@cache
def fingerprint(root: Path) -> str:
    """A hash of the headers' names, sizes and times, for the keys of compiled kernels."""
    import hashlib

    digest = hashlib.sha256()
    for folder in shown(root):
        for path in sorted(folder.rglob("*")):
            status = path.stat()
            digest.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()
