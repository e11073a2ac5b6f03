"""The installed NVSHMEM package, and the object of its device functions that nvcc builds once. Imports no torch.

    python -m sandbox.machine.nvshmem_package      builds the object for this machine's GPUs, and prints its path

NVRTC cannot compile nvshmem.h, so nvcc compiles a wrapper: the functions by C names. It is built at run time from the
installed headers, outside worlds, and never shipped. Kernels are linked with it in milliseconds.
"""

import contextlib
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from sandbox.machine import kernel_cache, nvml
from sandbox.machine.nccl_package import Package, dotted, installed

PACKAGES = ("nvidia-nvshmem-cu13", "nvidia-nvshmem-cu12")
ENVIRONMENT = {
    "NVSHMEM_REMOTE_TRANSPORT": "none",  # one machine
    "NVSHMEM_DISABLE_NVLS": "1",  # no multicast
    "NVSHMEM_DISABLE_NCCL": "1",  # its own communicator would take memory
    "NVSHMEM_DISABLE_LOCAL_ONLY_PROXY": "1",  # a thread that polls on the rank's core
    "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME": "lo",
    "NVSHMEM_BOOTSTRAP_UID_SOCK_FAMILY": "AF_INET",
}
"""Environment variables of every process that uses NVSHMEM, by the kit, torch or Triton."""
HOST_LIBRARY, DEVICE_LIBRARY = "lib/libnvshmem_host.so.3", "lib/libnvshmem_device.a"
"""Files of the package. The host library loads its plugins from its own folder; kernels are linked with the archive."""
MAJOR = 3
"""Major version whose structs the kit supports."""
WRAPPER = Path(__file__).parents[1] / "kit" / "include" / "px_nvshmem_wrapper.cu"
BUILD_SECONDS = 60.0


class NoWrapper(Exception):
    """The object cannot be built. The message is one line."""


@functools.cache
def package() -> Package | None:
    """The first installed package with a host library; None without one."""
    return installed(PACKAGES, "nvidia/nvshmem", "include/non_abi/nvshmem_version.h", "NVSHMEM_VENDOR_", HOST_LIBRARY)


def named(found: Package) -> str:
    """ "NVSHMEM 3.4.5"."""
    return f"NVSHMEM {dotted(found.version)}"


def nvcc() -> str | None:
    """CUDA's compiler: of CUDA_HOME or CUDA_PATH, of PATH, or of /usr/local/cuda; None without one."""
    named = (f"{home}/bin" for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")) if home)
    return next(filter(None, (shutil.which("nvcc", path=path) for path in (*named, None, "/usr/local/cuda/bin"))), None)


def architectures() -> list[str]:
    """The architectures of this machine's GPUs, such as "sm_90"; empty if NVML is not available."""
    try:
        pairs = {tuple(nvml.call("nvmlDeviceGetCudaComputeCapability", nvml.handle(gpu.index))) for gpu in nvml.gpus()}
    except nvml.NvmlMissing:
        return []
    return sorted(f"sm_{major}{minor}" for major, minor in pairs)


def wrapper_name(found: Package, arch: str) -> str:
    """The file of the wrapper's object for an architecture such as "sm_90"."""
    digest = hashlib.sha256(WRAPPER.read_bytes() + repr((found.version, arch)).encode()).hexdigest()
    return f"nvshmem-{digest[:32]}.cubin"


def build_wrappers(folder: Path, archs: list[str]) -> list[Path]:
    """The objects in a folder for these architectures. Missing ones are built, in seconds.

    Raises:
        NoWrapper: there is no package or no compiler, or the compiler fails.
    """
    found = package()
    if found is None:
        raise NoWrapper(f"no NVSHMEM is installed: pip install {PACKAGES[0]}==3.4.5")
    return [_built(found, folder, arch) for arch in archs]


def build_missing(folder: Path) -> bool:
    """Builds the objects for this machine's GPUs that a folder does not have. Returns whether it tried to.

    If an object cannot be built, a kernel that needs it gets the reason when it runs.
    """
    found, archs = package(), architectures()
    if found is None or nvcc() is None or all((folder / wrapper_name(found, arch)).is_file() for arch in archs):
        return False
    with contextlib.suppress(NoWrapper):
        build_wrappers(folder, archs)
    return True


def _built(found: Package, folder: Path, arch: str) -> Path:
    target = folder / wrapper_name(found, arch)
    if target.is_file():
        return target
    compiler = nvcc()
    if compiler is None:
        raise NoWrapper("NVSHMEM's device functions need nvcc once: install the CUDA toolkit")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        with tempfile.TemporaryDirectory(prefix="pkb-nvshmem-") as scratch:
            made = Path(scratch) / target.name
            flags = ("-cubin", "-rdc=true", f"-arch={arch}", "-std=c++17", f"-I{found.folder / 'include'}")
            command = [compiler, *flags, str(WRAPPER), "-o", str(made)]
            done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=BUILD_SECONDS)
            if done.returncode:
                raise NoWrapper(
                    f"nvcc cannot compile nvshmem.h: {(done.stderr.strip().splitlines() or ['no reason'])[0]}"
                )
            kernel_cache.put(target, made.read_bytes())
    except (OSError, subprocess.SubprocessError) as error:
        raise NoWrapper(f"nvcc cannot be run: {error}") from None
    return target


if __name__ == "__main__":
    try:
        print(*build_wrappers(Path(sys.argv[1] if sys.argv[1:] else tempfile.gettempdir()), architectures()), sep="\n")
    except NoWrapper as reason:
        sys.exit(str(reason))
