"""Profiles a kernel in a world of its own while nothing is being timed on the same devices."""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from arena.errors import ArenaError, MachineError, UsageError, why
from arena.paths import Paths, make_folder, write_atomically, write_named_file
from arena.profile.gpu_rules import Least, gpu_ranks
from arena.profile.ncu import NcuProfiled, ncu_kernels
from arena.profile.profile_process import Message, Profiled, ProfileRequest, encode
from arena.profile.report import profile_lines
from arena.profile.rules import figures, first_failure
from arena.words.untrusted_text import printable
from problems.specification import load_problem
from sandbox.jail.choice import choose
from sandbox.machine.devices import kind_of
from sandbox.machine.processes import adopt_orphans, die_with_parent
from sandbox.protocol.kernel_files import Kernel, kernel_hash
from sandbox.referee.lease import Lease, devices_of
from sandbox.worlds import deadlines
from sandbox.worlds.profiled_world import Place, ProfileFailed, find_ncu, ncu_world, profile_world


def keep_profile(paths: Paths, request: ProfileRequest, found: Profiled) -> str:
    """Stores a profile unless a rank failed. Returns the error if it could not be stored, else ""."""
    if first_failure(found.reports) is not None:
        return ""
    setting = request.setting
    head = f"{setting.preset} {setting.dtype} world {setting.world} {setting.device}"
    path = _path(paths, kernel_hash(request.source, request.files))
    try:
        make_folder(path.parent)
        write_atomically(path, "\n".join([head, *profile_lines(found), ""]).encode())
    except OSError as error:
        return f"the profile was not kept: {path}: {why(error)}"
    return ""


def ncu_file(paths: Paths, problem: str, request: ProfileRequest) -> Path:
    """Returns the path for a new report of Nsight Compute, and creates its folder.

    Raises:
        FolderUnwritable: the folder cannot be created or written.
    """
    revision = kernel_hash(request.source, request.files)[:8]
    return make_folder(paths.profiles) / f"{problem}-{revision}-{time.strftime('%Y%m%d-%H%M%S')}.ncu-rep"


def kept_profile(paths: Paths, sha256: str) -> str:
    """Returns the stored profile of a kernel, with the setting in its first line; empty if there is none."""
    try:
        return _path(paths, sha256).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def _path(paths: Paths, sha256: str) -> Path:
    return paths.profiles / "kernels" / f"{sha256}.txt"


CHECK_S = 0.05
"""Interval between checks whether the devices are free."""
COUNTERS = "an administrator lets users read them: NVreg_RestrictProfilingToAdminUsers=0 for the module nvidia"


def profile_ranks(request: ProfileRequest, tell: Callable[[bool], None]) -> Profiled:
    """Profiles a kernel on every rank and returns the reports with a diagnosis per rank.

    Blocks while the devices are in use, and then for seconds. The devices are leased meanwhile: a run that needs them
    for timing waits until the profile ends, as it does for a run of another arena.

    Args:
        request: the kernel.
        tell: called if the devices are not free, and when they are leased.

    Raises:
        MachineError: the devices did not become free, or a rank sent no report.
    """
    setting = request.setting
    with _turn(request, tell) as place:
        found = profile_world(place)
    if not kind_of(setting.device).on_gpus:
        return Profiled(found.reports, figures(found.reports))
    cost = load_problem(Path(setting.problem_dir)).cost(setting.sizes, setting.world, setting.dtype)
    ranks = gpu_ranks(found, Least.of(cost, request.peaks))
    return Profiled(found.reports, [], ranks, found.outside)


def profile_with_ncu(request: ProfileRequest, tell: Callable[[bool], None]) -> NcuProfiled:
    """Profiles the launches of one call on rank 0 with Nsight Compute, in a jail. Blocks for minutes; the devices are leased.

    The report goes to `request.ncu_file`, whose folder must exist.

    Raises:
        UsageError: the ranks are not on GPUs.
        MachineError: ncu is not installed, or there is no report; the message has the reason per replay mode.
    """
    if not kind_of(request.setting.device).on_gpus:
        raise UsageError("Nsight Compute profiles kernels of GPUs", "choose --device cuda, or leave out --ncu")
    ncu = find_ncu()
    if not ncu:
        raise MachineError(
            "Nsight Compute (ncu) is not installed", "install it with the CUDA toolkit, and put ncu on PATH"
        )
    with _turn(request, tell) as place:
        answer, data = ncu_world(place, ncu)
    refused = {mode: printable(why) for mode, why in answer.refused.items()}
    kernels = ncu_kernels(answer.csv)
    if not kernels:
        words = "; ".join(f"{mode} replay: {why}" for mode, why in refused.items()) or "its report names no kernel"
        advice = COUNTERS if "NVGPUCTRPERM" in words else "`pkb-arena profile` without --ncu needs no hardware counters"
        raise MachineError(f"ncu gave no report. {words}", advice)
    write_named_file(Path(request.ncu_file), data)
    return NcuProfiled(kernels, answer.mode, answer.seconds, refused, request.ncu_file)


@contextmanager
def _turn(request: ProfileRequest, tell: Callable[[bool], None]) -> Iterator[Place]:
    """Leases the devices for the block, which runs the world that is yielded. The world's failure ends the profile."""
    setting, name = request.setting, request.kernel_name if request.source else "baseline.py"
    readable = tuple(Path(folder).resolve() for folder in request.readable)
    try:
        lease = Lease(devices_of(setting))
    except OSError as error:
        raise MachineError(f"cannot ask for this machine's turn: {error}") from None
    with closing(lease):
        _take(lease, tell, Path(setting.problem_dir).name)
        tell(False)
        try:
            kernel = Kernel(request.source, request.files)
            yield Place(setting, name, kernel, kind_of(setting.device), choose(), readable)
        except ProfileFailed as error:
            advice = "`pkb-arena run` says whether the kernel is right and ends"
            raise MachineError(printable(str(error)), advice) from None


def _take(lease: Lease, tell: Callable[[bool], None], problem: str) -> None:
    until = 0.0
    while not lease.take(problem):
        if not until:
            until = time.monotonic() + deadlines.LEASE
            tell(True)
        if time.monotonic() > until:
            raise MachineError(
                f"kernels have been timed on these devices for {deadlines.LEASE:.0f} s", "try again later"
            )
        time.sleep(CHECK_S)


def main() -> None:
    """Reads a request, profiles its kernel and writes the result."""
    die_with_parent()
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=ProfileRequest)
    try:
        _say(profile_with_ncu(request, _say) if request.ncu_file else profile_ranks(request, _say))
    except ArenaError as error:
        _say((error.message, error.advice))


def _say(message: Message) -> None:
    sys.stdout.buffer.write(encode(message) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
