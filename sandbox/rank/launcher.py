"""The launcher, a world's first process: forks the ranks and reports their ends to the referee.

    python -m sandbox.rank.launcher PLAN     a LaunchPlan (sandbox/protocol/launch_plan.py) as JSON

Forking after the import means one import of torch per world. A world that the fork server forks needs none.
"""

import contextlib
import gc
import os
import resource
import select
import socket
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from sandbox.machine.processes import adopt_orphans, die_with_parent, forked
from sandbox.protocol import launch_plan
from sandbox.protocol.launch_plan import LaunchPlan

RANKS = "sandbox.rank.contender", "sandbox.rank.trusted", "sandbox.rank.kernel_compilers"
KIT = "sandbox.kit.recorded", "sandbox.kit.symmetric_memory.host_signals"
"""What most kernels import, in 40 ms of CPU time on each rank."""


def main() -> None:
    """Imports torch, then launches the world of the command line."""
    plan = launch_plan.decode(sys.argv[1])
    die_with_parent()
    import_ahead(plan.device_module)
    launch(plan)


def import_ahead(device_module: str) -> None:
    """Imports all that ranks and most kernels need. device_module: the module of the ranks' device."""
    # Imported objects are never freed, but the garbage collector would take a fifth of the import's time. It never
    # searches frozen objects again, and ranks share their pages.
    gc.disable()
    try:
        import torch.distributed
    except BaseException as error:
        raise ImportError(f"torch does not load: {type(error).__name__}: {' '.join(str(error).split())}") from error
    for module in (*RANKS, *KIT, device_module):
        import_module(module)
    find_compat()
    torch.set_num_threads(1)
    gc.freeze()
    gc.enable()


def find_compat() -> None:
    """Lets kernels import the packages of upstream that the kit replaces."""
    compat = str(Path(__file__).parents[1] / "kit" / "compat")
    if compat not in sys.path:
        sys.path.append(compat)


def launch(plan: LaunchPlan) -> None:
    """Forks the ranks, then reaps processes until all ranks have ended."""
    if _hung_up(plan.status):
        return  # the referee ended before this process was tied to it
    from sandbox.protocol import frames
    from sandbox.rank.contender import ContenderRank
    from sandbox.rank.trusted import TrustedRank

    adopt_orphans()
    if not plan.trusted:  # descriptors in flight count for the user: trusted ranks must still be able to send theirs
        half = resource.getrlimit(resource.RLIMIT_NOFILE)[1] // 2
        resource.setrlimit(resource.RLIMIT_NOFILE, (half, half))
        with contextlib.suppress(OSError):  # where memory runs out, the system ends this world and no other program
            Path("/proc/self/oom_score_adj").write_text("1000")
    # Threads of a rank (the caller's and gloo's) pass work to each other. Without wake-up preemption an all-reduce
    # always takes 0.3 ms, and not up to a scheduler's tick of 4 ms.
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    kind = TrustedRank if plan.trusted else ContenderRank
    pids = {forked(partial(_rank, plan, r, kind), 70): r for r in range(plan.ranks)}
    status = socket.socket(fileno=plan.status)
    for fd in [*plan.sockets, *plan.reports, *plan.pipes]:
        os.close(fd)
    while pids:
        pid, code = os.waitpid(-1, 0)
        if pid in pids:
            # arg: rank, value: the wait status
            status.sendall(frames.encode(frames.Kind.DONE, pids.pop(pid), code))
    # Processes that the ranks left behind are now children of this one, and end with the world.
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def _hung_up(fd: int) -> bool:
    """Whether the other end of a socket is closed."""
    poll = select.poll()
    poll.register(fd, select.POLLRDHUP)
    return bool(poll.poll(0))


def _rank(plan: LaunchPlan, r: int, kind: Any) -> None:
    from sandbox.rank import kernel_compilers
    from sandbox.rank.rank import prepare_process

    os.dup2(plan.pipes[r], 1)
    os.dup2(plan.pipes[r], 2)
    others = [fd for fds in (plan.sockets, plan.reports) for rank, fd in enumerate(fds) if rank != r]
    for fd in [*others, *plan.pipes, plan.status]:
        os.close(fd)
    os.sched_setaffinity(0, plan.cores[r])
    prepare_process()
    device = import_module(plan.device_module).device(r)
    folder = Path(plan.folder) / f"rank{r}"
    folder.mkdir(exist_ok=True)
    os.environ |= {"RANK": str(r), "LOCAL_RANK": str(r), "WORLD_SIZE": str(plan.ranks)}
    device.join(r, plan.ranks, plan.folder)
    if not plan.trusted:
        device.warm_up()
        kernel_compilers.watch()
    sock = socket.socket(fileno=plan.sockets[r])
    kind(r, plan.ranks, sock, plan.reports[r], folder, device).serve()


if __name__ == "__main__":
    main()
