"""The CuPy that fits a machine: for torch's CUDA version if torch has one, else for the driver's newest version.

`make install` runs this. Requirements for pip go to stdout, one per line; the reason goes to stderr.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from arena.machine.facts import CUPY, cuda_major, torch_cuda
from arena.machine.finding import extra_requirements
from sandbox.machine.nccl_package import dotted

CudaVersion = tuple[int, int]
KNOWN = (12, 13)
"""The CUDA major versions for which there is a CuPy: the extras cuda12 and cuda13."""


@dataclass(frozen=True)
class CupyChoice:
    """extra: the extra of pkb-arena to install, "" for none. why: in a sentence, for a person."""

    extra: str
    why: str


def choose_cupy(torch: CudaVersion | None, driver: CudaVersion | None, installed: Sequence[str] = ()) -> CupyChoice:
    """Chooses the CuPy for these versions.

    torch: the CUDA version it was built for, None for a build without; driver: the newest CUDA version it runs, None
    without a driver; installed: CuPy's installed packages.
    """
    if driver is None:
        return CupyChoice("", "no driver answers: there is no GPU to write CUDA C++ for")
    newest = dotted(driver)
    if torch is not None and torch[0] > driver[0]:
        return CupyChoice("", f"torch is for CUDA {dotted(torch)}, and the driver goes up to {newest}: mend that first")
    wanted = torch[0] if torch is not None else driver[0]
    because = (
        f"torch is for CUDA {dotted(torch)}, the driver goes up to {newest}"
        if torch is not None
        else f"the driver goes up to CUDA {newest}"
    )
    if wanted not in KNOWN:
        return CupyChoice("", f"{because}, and CuPy is here for CUDA {' and '.join(map(str, KNOWN))} alone")
    fitting = [package for package in installed if cuda_major(package) in (wanted, None)]
    if fitting:
        return CupyChoice("", f"{fitting[0]} is installed already, and fits: {because}")
    if installed:
        return CupyChoice(
            "", f"{installed[0]} is installed, and {because}: uninstall it, then install pkb-arena[cuda{wanted}]"
        )
    return CupyChoice(f"cuda{wanted}", because)


def this_machine() -> CupyChoice:
    """The choice for this machine's torch, driver and packages."""
    from arena.machine.facts import installed_version
    from sandbox.machine import nvml

    try:
        asked = nvml.ask("nvmlSystemGetCudaDriverVersion")
    except nvml.NvmlMissing as missing:
        return CupyChoice("", f"the driver cannot be asked: {missing}")
    driver = None if asked is None else (asked // 1000, asked % 1000 // 10)
    installed = [package for package in CUPY if installed_version(package)]
    return choose_cupy(torch_cuda(), driver, installed)


def main() -> None:
    """Prints requirements on stdout and the reason on stderr."""
    choice = this_machine()
    if choice.extra:
        print(f"CuPy for {choice.extra}: {choice.why}", file=sys.stderr)
        print("\n".join(extra_requirements(choice.extra)))
    else:
        print(f"no CuPy is installed: {choice.why}", file=sys.stderr)


if __name__ == "__main__":
    main()
