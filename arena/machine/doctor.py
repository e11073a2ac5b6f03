"""The doctor's findings about this machine and its GPUs, with advice. Imports neither torch nor CUDA."""

import fcntl
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from arena.errors import ArenaError
from arena.machine import facts
from arena.machine.facts import installed_version, is_jail, isolation_words, torch_fault, torch_is_cpu_only
from arena.machine.finding import (
    MachineFinding,
    as_root,
    extra_requirements,
    isolation_advice,
    isolation_fix,
    limited,
    limited_if,
    missing,
    ok,
    system_install,
)
from arena.machine.gpu_topology import GpuPair, Topology, fabric_is_up, topology
from arena.paths import Paths, find_paths, unwritable
from arena.settings import load_settings
from problems.catalogue import load_catalogue
from sandbox.jail.choice import choose
from sandbox.jail.memory import described, free_bytes
from sandbox.machine import nvml, thunderkittens
from sandbox.machine.backends import BACKENDS, Backend, python_install
from sandbox.machine.nccl_package import dotted
from sandbox.machine.nvml import Gpu, NvmlMissing
from sandbox.machine.processes import low_limits, tree

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
    yield from _gpu_software()


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


def _gpu_software() -> Iterator[MachineFinding]:
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


SHARED_MEMORY_MIB = 512
"""With less free space in /dev/shm, larger problems do not fit (containers default to 64 MiB)."""
FREE_MEMORY_GIB = 4
FREE_DISK_MIB = 200


def examine() -> list[MachineFinding]:
    """Examines the whole machine. Takes milliseconds without GPUs, up to seconds with them."""
    with suppress(ArenaError):  # `_files` reports it
        thunderkittens.name(load_settings(find_paths()).thunderkittens)
    # by a control group if possible, else by watching it from outside
    memory = [ok("world memory", described())] if sys.platform == "linux" else []
    return [*_software(), _jail(), *memory, *gpu_findings(), *_hardware(), *_terminal(), *_files(find_paths())]


def can_run(findings: list[MachineFinding]) -> bool:
    """Returns whether runs are possible: no finding has the state "missing"."""
    return all(finding.state != "missing" for finding in findings)


def _software() -> Iterator[MachineFinding]:
    yield ok("python", f"{platform.python_version()} at {sys.executable}")
    torch = installed_version("torch")
    if torch is None:
        yield missing(
            "torch", "not installed", "pip install torch (2.9 or newer): kernels need it", python_install(TORCH)
        )
    elif fault := torch_fault():
        again = ("install this torch again: kernels need it", python_install(f"torch=={torch}", force=True))
        yield missing("torch", f"{torch} does not load: {fault}", *([low] if (low := low_limits()) else again))
    else:
        yield ok("torch", torch + (", CPU only" if torch_is_cpu_only() else ""))
    gcc = shutil.which("gcc")
    advice = "install gcc and g++ to write C++ kernels for CPU ranks"
    yield limited_if(gcc is None, "gcc", gcc or "not found", advice, *system_install("gcc", "g++"))


def _jail() -> MachineFinding:
    """Tests which jail profile a referee started now would use. Takes 0.1 s per profile."""
    jail = choose()
    profile = jail.profile
    why = "; ".join(f"profile {name} fails: {reason}" for name, reason in jail.rejected.items())
    found = f"{isolation_words(profile.name)}, profile {profile.name}" + (f" ({why})" if why else "")
    if profile.name == "full":
        return ok("jail", found)
    loses = f"{found}: {profile.loses}" if profile.loses else found
    refused = "" if is_jail(profile.name) else "; until then a model's kernels run only with --unsafe"
    return limited("jail", loses, f"{isolation_advice(profile.name)}{refused}", *isolation_fix(profile.name))


def _hardware() -> Iterator[MachineFinding]:
    cores = len(os.sched_getaffinity(0))
    advice = "two ranks share one core and take turns: do not rely on speedups measured here"
    yield limited_if(cores < 2, "cores", str(cores), advice)
    memory = free_bytes() / 2**30
    advice = "keep to small worlds: a rank takes about 0.3 GiB"
    yield limited_if(memory < FREE_MEMORY_GIB, "memory", f"{memory:.1f} GiB free", advice)
    if low := low_limits():
        yield limited("limits", "lower than ranks need", low)
    yield _shared_memory()
    yield _seals()


def _shared_memory() -> MachineFinding:
    if not os.access("/dev/shm", os.W_OK | os.X_OK):
        advice = "mount a writable tmpfs at /dev/shm: NCCL and kernels may share memory through it"
        return limited("/dev/shm", "not there, or not writable", advice)
    room = shutil.disk_usage("/dev/shm").free >> 20
    advice, fix = "in a container: docker run --shm-size=8g", as_root("mount -o remount,size=8G /dev/shm")
    return limited_if(room < SHARED_MEMORY_MIB, "/dev/shm", f"{room} MiB free", advice, fix)


def _seals() -> MachineFinding:
    """Checks whether inputs can be sealed against writing (memfd_create with F_SEAL_WRITE)."""
    try:
        file = os.memfd_create("doctor", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    except (OSError, AttributeError):
        return missing("sealed memory", "no memfd", "run on Linux 3.17 or newer")
    try:
        os.ftruncate(file, 4096)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
    except OSError as error:
        return missing("sealed memory", error.strerror or str(error), "allow memfd seals in this container")
    finally:
        os.close(file)
    return ok("sealed memory", "memfd seals work")


def _terminal() -> Iterator[MachineFinding]:
    if not sys.stdout.isatty():
        yield limited("terminal", "stdout is not a terminal", "the app needs one; every command works")
        return
    columns, lines = shutil.get_terminal_size()
    colours = os.environ.get("COLORTERM", "")
    term = os.environ.get("TERM", "")
    depth = "16 million" if colours in {"truecolor", "24bit"} else "256" if "256" in term else "16"
    found = f"{columns} x {lines}, {depth} colours ({term or 'TERM is not set'})"
    if os.environ.get("NO_COLOR"):
        yield limited("terminal", f"{found}, NO_COLOR set", "unset NO_COLOR to see colours", "unset NO_COLOR")
    elif columns < 60:
        yield limited("terminal", found, "widen it to 60 columns or more: below that one pane is shown")
    elif depth == "16":
        yield limited("terminal", found, "choose the theme `ansi`, or a terminal with more colours")
    else:
        yield ok("terminal", found)


def _files(paths: Paths) -> Iterator[MachineFinding]:
    for name, folder in (("settings", paths.config), ("data", paths.data), ("state", paths.state)):
        yield _folder(name, folder)
    try:
        settings = load_settings(paths)
        broken = load_catalogue(settings.problem_folders).broken
    except ArenaError as error:
        yield missing("settings file", error.message, error.advice)
        return
    for wrong in settings.wrong.values():
        yield limited("settings file", wrong.why, f"correct that table in {paths.settings_file}")
    for problem in broken:
        yield limited("problem", str(problem), "correct it, or take it out of problem_dirs")


def _folder(name: str, folder: Path) -> MachineFinding:
    name = f"{name} folder"
    there = next((place for place in (folder, *folder.parents) if os.path.exists(place)), folder)
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        fault = unwritable(folder, PermissionError(f"{there} is not a folder that can be written"))
        return missing(name, fault.message, fault.advice)
    room = shutil.disk_usage(there).free >> 20
    if room < FREE_DISK_MIB:
        return limited(name, f"{folder}, {room} MiB free", "free some space: journals grow with every run")
    return ok(name, str(folder))
