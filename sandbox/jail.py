"""The command that starts a world, inside whatever walls this machine allows.

A profile says what it can promise; `none` promises nothing beyond a scrubbed environment, closed file descriptors and a
process tree that is killed as a whole.
"""

import os
from dataclasses import dataclass
from pathlib import Path

KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CUDA_HOME", "CUDA_PATH")
KEPT_PREFIXES = ("NCCL_", "TORCH_SYMM_MEM_", "NVSHMEM_", "CUDA_VISIBLE_")


@dataclass(frozen=True)
class Profile:
    """What walls a world is behind."""

    name: str

    def command(self, argv: list[str]) -> list[str]:
        """argv wrapped in the walls."""
        return argv


def choose() -> Profile:
    """The strongest profile that this machine passes the self-test of."""
    return Profile("none")


def environment(home: Path, extra: dict[str, str]) -> dict[str, str]:
    """The whole environment of a world: nothing of the user's beyond paths and library settings, never a key."""
    kept = {k: v for k, v in os.environ.items() if k in KEPT or k.startswith(KEPT_PREFIXES)}
    return {
        **kept,
        "HOME": str(home),
        "TMPDIR": str(home),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "TERM": "dumb",
        **extra,
    }
