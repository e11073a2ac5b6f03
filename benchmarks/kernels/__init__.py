"""Kernels that only tests and benchmarks run. The CUDA examples, which house kernels run, too, are in the kit."""

from pathlib import Path

import sandbox

_KIT = Path(sandbox.__path__[0]) / "kit"
FOLDERS = (Path(__file__).parent, *(_KIT / part / "examples" for part in ("", "nccl", "shmem")))


def kernel_paths() -> dict[str, Path]:
    """The kernels' files by name."""
    return {path.stem: path for folder in FOLDERS for path in sorted(folder.glob("[!_]*.py"))}
