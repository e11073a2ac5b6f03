"""The doctor's findings about GPUs: the GPUs, their connections, and the software for kernels."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from arena.machine import facts
from arena.machine.finding import MachineFinding, extra_requirements, limited, limited_if, ok
from arena.machine.gpu_topology import GpuPair, Topology, fabric_is_up, topology
from sandbox.machine import nvml
from sandbox.machine.backends import BACKENDS, Backend, python_install
from sandbox.machine.nccl_package import dotted
from sandbox.machine.nvml import Gpu, NvmlMissing
from sandbox.machine.processes import tree

TORCH = "torch>=2.9,<3"
NVML = "nvidia-ml-py"
UNSEEN_MIB = 2048
"""A driver takes less. If more memory is in use and no process is visible, a hidden process uses it."""
_NAMED = 6
"""Most pairs, processes or GPUs that a line lists; it only counts the rest."""
_MULTICAST_OFF = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}


def gpu_findings() -> Iterator[MachineFinding]:
    """Yields the findings. Takes milliseconds without GPUs, else up to seconds. GPU numbers: as in nvidia-smi."""
    visible = facts.visible_gpus()
    if not visible:
        yield limited("GPUs", "none visible", "kernels run on CPU ranks; everything else is the same")
        return
    gpus = facts.gpu_details()
    yield _gpus(visible, gpus)
    try:
        yield from _driver_says(gpus)
    except NvmlMissing as missing:
        lacks_package = isinstance(missing.__cause__, ImportError)
        fix = (python_install(NVML),) if lacks_package else ()
        yield limited("NVML", str(missing), _nvml_advice(missing), *fix)
    yield from _software()


def _gpus(visible: int, gpus: Sequence[Gpu]) -> MachineFinding:
    names = ", ".join(sorted({f"{gpu.name} ({gpu.memory_mib // 1024} GiB)" for gpu in gpus})) or "unknown"
    advice, fix = "install torch with CUDA to use them", python_install(TORCH, force=True)
    return limited_if(facts.torch_is_cpu_only(), "GPUs", f"{visible} x {names}", advice, fix)


def _nvml_advice(missing: NvmlMissing) -> str:
    if isinstance(missing.__cause__, ImportError):
        return "pip install nvidia-ml-py: without it the state of the GPUs and their links is not known"
    return "see whether nvidia-smi works here; if it does not, an administrator must repair the driver"


# --- reports of the driver ---------------------------------------------------------------------------------


def _driver_says(gpus: Sequence[Gpu]) -> Iterator[MachineFinding]:
    nvml.gpus()  # raises NvmlMissing with the reason; `gpu_details` hides it
    yield _driver()
    if len(gpus) > 1:
        found = topology(gpus)
        yield _nvlink(found)
        yield _p2p(found)
    yield _multicast(gpus)
    yield _health(gpus)
    yield _others(gpus)
    yield _persistence(gpus)


def _driver() -> MachineFinding:
    version = nvml.ask("nvmlSystemGetDriverVersion") or "of unknown version"
    cuda = nvml.ask("nvmlSystemGetCudaDriverVersion")
    if cuda is None:
        return ok("driver", str(version))
    newest = (cuda // 1000, cuda % 1000 // 10)
    found = f"{version}, up to CUDA {dotted(newest)}"
    torch = facts.torch_cuda()
    if torch is None:
        return ok("driver", found)
    found += f"; torch is for CUDA {dotted(torch)}"
    if torch[0] > newest[0]:
        advice = f"install torch for CUDA {newest[0]}, or a newer driver: this torch finds no GPU here"
        return limited("driver", found, advice)
    return ok("driver", found)


def _nvlink(found: Topology) -> MachineFinding:
    up = [links.up for links in found.links]
    pairs = found.by_links()
    apart = pairs.pop(0, [])
    ways = sorted(f"NV{links}" for links in pairs)
    if not pairs:
        return limited(
            "NVLink",
            f"none between the {len(up)} GPUs; links up on each: {_each(up)}",
            "ranks talk over PCIe or the host's memory: speedups differ from those of machines with NVLink",
        )
    if apart:
        return limited(
            "NVLink",
            f"{', '.join(ways)}, but none between {_between(apart)}",
            "choose GPUs that are linked with CUDA_VISIBLE_DEVICES, or expect these pairs to be slow",
        )
    if len(ways) > 1 or len(set(up)) > 1:
        return limited(
            "NVLink",
            f"between all pairs, but not alike: {', '.join(ways)}; links up on each: {_each(up)}",
            "the GPU with the fewest links sets the pace; nvidia-smi nvlink --status says which are down",
        )
    through = " through switches" if found.switched else ""
    return ok("NVLink", f"all to all, {ways[0]}{through}; {up[0]} links up on each GPU")


def _p2p(found: Topology) -> MachineFinding:
    apart = "; ".join(f"not between {_between(pairs)} ({why})" for why, pairs in found.without_p2p().items())
    advice = "kernels with symmetric memory fail between these; virtual machines and IOMMUs can turn it off"
    return limited_if(apart, "P2P", apart or "every GPU reads and writes every other's memory", advice)


def _multicast(gpus: Sequence[Gpu]) -> MachineFinding:
    off = [f"{name}={value}" for name, value in _MULTICAST_OFF.items() if os.environ.get(name) == value]
    if off:
        return limited(
            "multicast",
            f"turned off: {', '.join(off)}",
            "multimem instructions and NCCL's NVLS are not used; leave it so where a machine's owner set it",
        )
    states = {fabric_is_up(gpu) for gpu in gpus}
    if states == {True}:
        return ok("multicast", "the GPUs are part of an NVLink fabric that is up")
    if None in states:
        words = "the driver does not say whether the GPUs are part of an NVLink fabric"
    else:
        words = "the GPUs are part of no NVLink fabric that is up"
    return limited(
        "multicast", words, "multimem instructions may not work: it takes NVSwitches and a running nvidia-fabricmanager"
    )


def _health(gpus: Sequence[Gpu]) -> MachineFinding:
    ill = _some([f"GPU {gpu.index}: {words}" for gpu in gpus if (words := nvml.recovery(gpu))])
    well = "no uncorrectable memory error, and the driver asks for nothing"
    advice = "leave these out with CUDA_VISIBLE_DEVICES, and tell the administrator of this machine"
    return limited_if(ill, "GPU health", ill or well, advice)


def _others(gpus: Sequence[Gpu]) -> MachineFinding:
    ours = set(tree(os.getpid()))  # in the app, this includes the app's worlds
    words = []
    for gpu in gpus:
        there = nvml.compute_pids(gpu)
        pids = there - ours
        used = nvml.memory_used_mib(gpu)
        if pids:
            words.append(f"GPU {gpu.index}: {_some([_process(pid) for pid in sorted(pids)])}")
        elif not there and used > UNSEEN_MIB:
            words.append(f"GPU {gpu.index}: {used} MiB are taken by hidden processes (other containers or users)")
    found = "; ".join(words) or "none but our own: the GPUs are free"
    return limited_if(bool(words), "GPU processes", found, "timings are disturbed while these compute")


def _process(pid: int) -> str:
    try:
        return f"{Path(f'/proc/{pid}/comm').read_text().strip()} ({pid})"
    except OSError:  # it ended, or is hidden
        return str(pid)


def _persistence(gpus: Sequence[Gpu]) -> MachineFinding:
    modes = {gpu.index: nvml.ask("nvmlDeviceGetPersistenceMode", nvml.handle(gpu.index)) for gpu in gpus}
    off = _some([str(index) for index, mode in modes.items() if mode == 0])
    advice = "where it is your machine, start nvidia-persistenced: the first world after a pause starts sooner"
    return limited_if(off, "persistence", f"off on GPU {off}" if off else "the driver stays loaded", advice)


# --- software for kernels ----------------------------------------------------------------------------------


def _software() -> Iterator[MachineFinding]:
    torch = facts.torch_cuda()
    major = torch[0] if torch else None
    yield _nccl(major)
    yield _cupy(major)
    yield _nvcc(major)
    yield from map(_backend, BACKENDS)
    triton = facts.installed_version("triton")
    advice, fix = "pip install triton to write Triton kernels", python_install("triton")
    yield limited_if(triton is None, "Triton", triton or "not installed", advice, fix)


def _nccl(major: int | None) -> MachineFinding:
    found = _installed(facts.NCCL)
    if not found:
        return limited(
            "NCCL",
            "no nvidia-nccl package: its version is not known",
            "nothing to do where torch was built with an NCCL of its own; else install torch from PyPI",
        )
    return _fitting("NCCL", found, major, "it comes with torch: install torch again")


def _cupy(major: int | None) -> MachineFinding:
    found = _installed(facts.CUPY)
    extra = f"pip install 'pkb-arena[cuda{major or 13}]'"
    if not found:
        wanted = extra_requirements(f"cuda{major or 13}")
        fix = (python_install(*wanted),) if wanted else ()
        return limited("CuPy", "not installed", f"{extra} to write CUDA C++ kernels", *fix)
    return _fitting("CuPy", found, major, f"pip uninstall {found[0][0]}, then {extra}")


def _backend(backend: Backend) -> MachineFinding:
    found, advice, package = backend.availability()
    fix = (python_install(package),) if package else ()
    return limited_if(advice, backend.label, found, advice, *fix)


def _installed(packages: Sequence[str]) -> list[tuple[str, str]]:
    return [(name, version) for name in packages if (version := facts.installed_version(name))]


def _fitting(name: str, found: Sequence[tuple[str, str]], major: int | None, advice: str) -> MachineFinding:
    """Returns ok if one of the packages is for torch's CUDA version, or if its name contains no CUDA version."""
    words = ", ".join(f"{package} {version}" for package, version in found)
    if major is None or any(facts.cuda_major(package) in (major, None) for package, _ in found):
        return ok(name, words)
    return limited(name, f"{words}, but torch is for CUDA {major}", advice)


def _nvcc(major: int | None) -> MachineFinding:
    found = facts.nvcc()
    if found is None:
        return limited(
            "nvcc",
            "not found",
            "install the CUDA toolkit, or set CUDA_HOME, to write load_inline kernels; those of the kit need none",
        )
    path, version = found
    if version is None:
        return limited("nvcc", f"{path} does not say its version", f"see what {path} --version says")
    words = f"{dotted(version)} at {path}"
    if major is not None and version[0] != major:
        advice = f"set CUDA_HOME to a toolkit for CUDA {major}: torch's load_inline refuses another"
        return limited("nvcc", f"{words}, but torch is for CUDA {major}", advice)
    return ok("nvcc", words)


# --- words -------------------------------------------------------------------------------------------------


def _some(words: Sequence[str]) -> str:
    more = f" and {len(words) - _NAMED} more" if len(words) > _NAMED else ""
    return ", ".join(words[:_NAMED]) + more


def _between(pairs: Sequence[GpuPair]) -> str:
    return _some([f"{pair.first.index}-{pair.second.index}" for pair in pairs])


def _each(numbers: Sequence[int]) -> str:
    return " ".join(map(str, numbers))
