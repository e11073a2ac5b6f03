"""The command that adds Python packages to this program's environment and leaves its torch as it is."""

import re
import shlex
import sys
from importlib import metadata

PROGRAM = "pkb-arena"


def python_install(*requirements: str, executable: str = sys.executable, force: bool = False) -> str:
    """The command that adds Python packages to `executable`'s environment with pipx, uv or pip.

    It names the installed torch, unless torch itself is wanted: a package that needs torch would else bring another build.
    """
    if not any(re.fullmatch(r"torch\W.*|torch", wanted) for wanted in requirements):
        requirements += _installed_torch()
    wanted = shlex.join(requirements)
    if "/pipx/venvs/" in executable:
        return f"pipx inject {'--force ' if force else ''}{PROGRAM} {wanted}"
    if "/uv/tools/" in executable:
        return f"uv pip install --python {shlex.quote(executable)} {'--reinstall ' if force else ''}{wanted}"
    again = "--force-reinstall " if force else ""
    return f"{shlex.quote(executable)} -m pip install {again}{wanted}"


def _installed_torch() -> tuple[str, ...]:
    try:
        return (f"torch=={metadata.version('torch')}",)
    except metadata.PackageNotFoundError:
        return ()
