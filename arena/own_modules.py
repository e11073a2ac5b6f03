"""Commands and environments that run pkb-arena's own modules in processes of their own, from any folder."""

import os
import re
import sys
from pathlib import Path

import sandbox

ROOT = Path(sandbox.__file__).resolve().parent.parent
"""The folder that holds the packages: the folder to start such a process in, because a module's process looks
for imports where it stands first, and a user's `torch.py` is not ours."""


def module_command(module: str, *arguments: str) -> tuple[str, ...]:
    """The command that runs a module with this interpreter."""
    return (sys.executable, "-P", "-m", module, *arguments)


KEPT = frozenset(  # what a shell and the standard library go by
    (  # noqa: SIM905
        "PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TMPDIR TEMP TMP TERM COLORTERM NO_COLOR COLUMNS LINES HOSTNAME "
        "VIRTUAL_ENV CONDA_PREFIX CC CXX CFLAGS CXXFLAGS LDFLAGS MAX_JOBS "
        "THUNDERKITTENS_ROOT "
        "DBUS_SESSION_BUS_ADDRESS NVCC"  # systemd makes control groups through the first
    ).split()
)
KEPT_PREFIXES = (
    *("PKB_", "PYTHON", "LC_", "LD_", "XDG_"),
    *("CUDA", "NVIDIA_", "NCCL_", "NVSHMEM_", "CUPY_", "TRITON_", "TORCH", "PYTORCH_", "UCX_", "FI_"),
    *("OMP_", "MKL_", "OPENBLAS_", "KMP_", "GOMP_", "GLOO_", "RAY_", "COV", "PYTEST_"),
)
"""Of what libraries are set by."""


def module_environment() -> dict[str, str]:
    """The environment in which that command finds its modules: what is known to be needed, and no key or password."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    kept = {name: value for name, value in os.environ.items() if _is_kept(name)}
    return kept | {"PYTHONPATH": path}


def withhold(name: str) -> None:
    """Keeps a variable from every process started from now on, whatever it is called."""
    _names.add(name)


_names: set[str] = set()


_SECRET = re.compile(r"(^|_)(KEY|TOKEN|SECRET|PASS(WORD|WD)?|CREDENTIALS?)(_|$)", re.IGNORECASE)


def _is_kept(name: str) -> bool:
    known = name in KEPT or name.startswith(KEPT_PREFIXES)
    return known and name not in _names and not _SECRET.search(name)
