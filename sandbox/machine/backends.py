"""The backends: libraries for communication inside kernels, beside the kit's own symmetric memory. One row each.

Used by `new --template`, `generate --backend`, the doctor, the labels of verdicts and the check before a run. A new
backend needs a row here, a module and a template of the kit with its name, and a page `kit_<name>.md` for models.
Imports neither torch nor the kit.
"""

import contextlib
import re
import shlex
import sys
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from sandbox.machine import nccl_package, nvshmem_package, thunderkittens
from sandbox.machine.devices import kind_of


class Availability(NamedTuple):
    """Whether this machine has the software of a backend."""

    found: str
    """The software found, or what is missing."""
    advice: str = ""
    """What to do; empty if nothing is missing."""
    package: str = ""
    """The missing package, for pip."""


class Backend(NamedTuple):
    """One backend. All of them need GPU ranks, and peers to communicate with."""

    name: str
    """The value of `new --template` and `generate --backend`."""
    title: str
    """Its name in sentences."""
    modules: tuple[str, ...]
    """Modules by which a kernel uses it."""
    label: str
    """Its label in verdicts and on boards."""
    availability: Callable[[], Availability]
    """Checks this machine's software, in milliseconds. The doctor checks the GPUs."""
    build: Callable[[Path], bool] | None = None
    """Builds the parts that its kernels share into a folder: once per machine, in seconds. Returns whether it had
    to."""


def _nccl() -> Availability:
    headers = nccl_package.nccl_headers()
    if headers is None:
        return Availability(
            "no nccl_device.h in an installed NCCL package",
            "install torch from PyPI for CUDA 13: its NCCL package has the headers",
            "nvidia-nccl-cu13==2.28.9",
        )
    if headers.version not in nccl_package.LAYOUTS:
        return Availability(nccl_package.unknown(headers.version), "install the NCCL that torch was built with")
    return Availability(f"NCCL {nccl_package.dotted(headers.version)} with device headers")


def _nvshmem() -> Availability:
    found = nvshmem_package.package()
    if found is None:
        return Availability("no NVSHMEM package", "install torch from PyPI for CUDA 13", "nvidia-nvshmem-cu13==3.4.5")
    name = nvshmem_package.named(found)
    if found.version[0] != nvshmem_package.MAJOR:
        return Availability(
            f"the kit knows NVSHMEM {nvshmem_package.MAJOR}, and this is {name}", "install that of torch"
        )
    if nvshmem_package.nvcc() is None:
        return Availability(f"{name} without device functions: they need nvcc once", "install the CUDA toolkit")
    return Availability(f"{name} with device functions")


def _kittens() -> Availability:
    root = thunderkittens.checkout()
    if root is None:
        return Availability(
            thunderkittens.why_missing(),
            f"clone HazyResearch/ThunderKittens, and name its folder in {thunderkittens.VARIABLE} or the setting thunderkittens",
        )
    return Availability(f"ThunderKittens, {thunderkittens.commit(root) or 'commit unknown'}, at {root}")


BACKENDS = (
    Backend("nccl", "NCCL's device API", ("sandbox.kit.nccl",), "nccl device", _nccl),
    Backend(
        "shmem",
        "NVSHMEM",
        ("sandbox.kit.shmem", "torch.distributed._symmetric_memory._nvshmem_triton"),
        "nvshmem",
        _nvshmem,
        nvshmem_package.build_missing,
    ),
    Backend("kittens", "ThunderKittens", ("sandbox.kit.kittens", "utils.parallelkittens_runtime"), "kittens", _kittens),
)


def backend_names() -> list[str]:
    return [backend.name for backend in BACKENDS]


def named(name: str) -> Backend | None:
    return next((backend for backend in BACKENDS if backend.name == name), None)


def used(modules: Iterable[str]) -> list[Backend]:
    """The backends that a kernel with these imports uses. `from a import b` is the module a.b."""
    imported = set(modules)
    return [backend for backend in BACKENDS if any(within(each, own) for each in imported for own in backend.modules)]


def label_in(labels: Iterable[str]) -> str:
    """The labels of backends among those of a verdict, joined; empty without one."""
    found = set(labels)
    return ", ".join(backend.label for backend in BACKENDS if backend.label in found)


def refusal(backend: Backend, device: str, world: int) -> str:
    """Why kernels of a backend cannot run with this device and world size, in one line; empty if they can."""
    kind = kind_of(device)
    if not kind.on_gpus:
        return f"kernels over {backend.title} need GPUs, and this run is on {kind.ranks_name}"
    if world == 1:
        return f"kernels over {backend.title} need peers, and this world has one rank"
    return ""


def within(module: str, package: str) -> bool:
    """Whether a module is a package or in it."""
    return module == package or module.startswith(f"{package}.")


PROGRAM = "pkb-arena"


def python_install(*requirements: str, executable: str = sys.executable, force: bool = False) -> str:
    """The command that adds Python packages to `executable`'s environment with pipx, uv or pip.

    It names the installed torch, unless torch itself is wanted: a package that needs torch would else bring another build.
    """
    if not any(re.fullmatch(r"torch\W.*|torch", wanted) for wanted in requirements):
        with contextlib.suppress(metadata.PackageNotFoundError):
            requirements += (f"torch=={metadata.version('torch')}",)
    wanted = shlex.join(requirements)
    if "/pipx/venvs/" in executable:
        return f"pipx inject {'--force ' if force else ''}{PROGRAM} {wanted}"
    if "/uv/tools/" in executable:
        return f"uv pip install --python {shlex.quote(executable)} {'--reinstall ' if force else ''}{wanted}"
    again = "--force-reinstall " if force else ""
    return f"{shlex.quote(executable)} -m pip install {again}{wanted}"
