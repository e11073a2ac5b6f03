"""A kernel is profiled in a world of its own, when nothing is being timed on the same devices."""

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from arena.errors import MachineError
from arena.foreign_text import printable
from arena.profile.gpu_figures import Least
from arena.profile.gpu_rules import gpu_ranks
from arena.profile.messages import Begins, Profiled, ProfileRequest, Waits
from arena.profile.rules import figures
from problems.specification import load_problem
from sandbox.jail.choice import choose
from sandbox.machine.devices import kind_of
from sandbox.protocol.kernel_files import Kernel
from sandbox.referee.lease import Lease, devices_of
from sandbox.worlds import deadlines
from sandbox.worlds.profiling.world import ProfileFailed, profile_world

LOOK_S = 0.05
"""Between two looks whether the devices are free."""


def profile_ranks(request: ProfileRequest, tell: Callable[[Waits | Begins], None]) -> Profiled:
    """What every rank says of itself, with a sentence for each. Blocks for seconds, and while these devices are in use.

    The devices are leased meanwhile: a run that would be timed waits for the end of the profile, as for another arena's run.

    Args:
        request: the kernel.
        tell: gets Waits if the devices are not free, and Begins when they are leased.

    Raises:
        MachineError: the devices did not get free, or a rank sent no report.
    """
    setting = request.setting
    kind = kind_of(setting.device)
    own = tuple(Path(folder).resolve() for folder in request.readable)
    name = request.kernel_name if request.source else "baseline.py"
    jail = choose()
    try:
        lease = Lease(devices_of(setting))
    except OSError as error:
        raise MachineError(f"cannot ask for this machine's turn: {error}") from None
    with closing(lease):
        _take(lease, tell, Path(setting.problem_dir).name)
        tell(Begins())
        try:
            found = profile_world(setting, name, Kernel(request.source, request.files), kind, jail, own)
        except ProfileFailed as error:
            advice = "`pkb-arena run` says whether the kernel is right and ends"
            raise MachineError(printable(str(error)), advice) from None
    if not kind.on_gpus:
        return Profiled(found.reports, figures(found.reports))
    cost = load_problem(Path(setting.problem_dir)).cost(setting.sizes, setting.world, setting.dtype)
    ranks = gpu_ranks(found, Least.of(cost, request.peaks))
    return Profiled(found.reports, [], ranks, found.outside)


def _take(lease: Lease, tell: Callable[[Waits | Begins], None], problem: str) -> None:
    until = 0.0
    while not lease.take(problem):
        if not until:
            until = time.monotonic() + deadlines.TURN
            tell(Waits())
        if time.monotonic() > until:
            raise MachineError(
                f"kernels have been timed on these devices for {deadlines.TURN:.0f} s", "try again later"
            )
        time.sleep(LOOK_S)
