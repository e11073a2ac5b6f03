"""The doctor's findings about this machine, with advice. Imports neither torch nor CUDA."""

import fcntl
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from arena.errors import ArenaError
from arena.machine.facts import installed_version, is_jail, isolation_words, torch_fault, torch_is_cpu_only
from arena.machine.finding import (
    MachineFinding,
    as_root,
    isolation_advice,
    isolation_fix,
    limited,
    limited_if,
    missing,
    ok,
    system_install,
)
from arena.machine.gpu_findings import TORCH, gpu_findings
from arena.paths import Paths, find_paths, unwritable
from arena.settings import load_settings
from problems.catalogue import load_catalogue
from sandbox.jail.choice import choose
from sandbox.jail.memory import described, free_bytes
from sandbox.machine import thunderkittens
from sandbox.machine.backends import python_install
from sandbox.machine.processes import low_limits

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
