"""Commands and environments that run pkb-arena's own modules in processes of their own, from any folder."""

import os
import sys
from pathlib import Path

import sandbox

ROOT = Path(sandbox.__file__).resolve().parent.parent
"""The folder that holds the packages: the folder to start such a process in, because a module's process looks
for imports where it stands first, and a user's `torch.py` is not ours."""


def module_command(module: str, *arguments: str) -> tuple[str, ...]:
    """The command that runs a module with this interpreter."""
    return (sys.executable, "-P", "-m", module, *arguments)


def module_environment() -> dict[str, str]:
    """The environment in which that command finds its modules. API keys are not in it."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    kept = {name: value for name, value in os.environ.items() if not _withheld(name)}
    return kept | {"PYTHONPATH": path}


def withhold(name: str) -> None:
    """Keeps a variable from every process started from now on, whatever it is called."""
    _names.add(name)


_names: set[str] = set()


def _withheld(name: str) -> bool:
    return name in _names or name.upper().endswith(("_API_KEY", "_API_TOKEN", "_SECRET_KEY"))
