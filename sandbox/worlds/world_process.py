"""The processes of a world: a launcher in its walls, and the ranks that it forks."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.jail import ending, kernel_cache
from sandbox.jail import memory as bounds
from sandbox.jail.choice import Jail
from sandbox.jail.profiles import import_paths
from sandbox.machine import processes
from sandbox.machine.devices.kind import DeviceKind
from sandbox.machine.placement import RankGpu, cores_of
from sandbox.machine.processes import kill_tree, tree
from sandbox.protocol import launch_plan
from sandbox.protocol.launch_plan import LaunchPlan
from sandbox.worlds.rank_wire import RankEnds
from sandbox.worlds.stopping import Activity, ByGroup, BySignals, Stopping
from sandbox.worlds.world_folder import WorldFolder

MEMORY_CHECK_SECONDS = 0.25
SHOWN = "compiled"
"""Of a world's folder, the one in which it finds what its kernel's text has compiled before."""


@dataclass(frozen=True)
class Quarters:
    """Where the ranks of a world run, and what they may read."""

    ranks: int
    kind: DeviceKind
    trusted: bool
    """Whether its ranks answer with messages that are believed."""
    jail: Jail
    readable: tuple[Path, ...] = ()
    """Problem folders of the user's own."""
    gpus: tuple[RankGpu, ...] = ()
    """One a rank; empty for CPU ranks."""
    kernel: bool = True
    """Whether a kernel may run in it: what goes wrong in the world is then the kernel's fault."""


class WorldProcess:
    """One launcher with all that it started, from its start until `close`."""

    def __init__(
        self,
        quarters: Quarters,
        process: "subprocess.Popen[bytes]",
        bound: bounds.Bound,
        folder: WorldFolder,
    ) -> None:
        """bound: the memory that it may hold. See `start`."""
        self.pid = process.pid
        self._quarters = quarters
        self._process = process
        self._bound = bound
        self._folder = folder
        self._rank_pids: list[int] = []
        self._stopping: Stopping = (
            ByGroup(bound.group)
            if bound.group
            else BySignals(self.pid, lambda: self.rank_pids, quarters.kernel)
        )
        self._paused = False
        self._complete = False
        """Whether what was started while it was stopped has been stopped, too."""
        self._memory_checked = time.monotonic()

    @classmethod
    def start(cls, quarters: Quarters, ends: Sequence[RankEnds], status: int) -> "WorldProcess":
        """Starts the launcher. ends, status: descriptors that it inherits; the caller closes its own copies.

        Raises OSError where this machine has no process, descriptor or memory left.
        """
        with contextlib.ExitStack() as afterwards, contextlib.ExitStack() as undo:
            passed = [fd for end in ends for fd in end] + [status]
            folder = WorldFolder()
            undo.callback(folder.remove)
            # The baseline too: what the walls cost must cost both worlds the same.
            profile = quarters.jail.profile
            kind, gpus = quarters.kind, quarters.gpus
            plan = LaunchPlan(
                ranks=quarters.ranks,
                trusted=quarters.trusted,
                device_module=kind.rank_module,
                folder=str(profile.inside(folder.path)),
                cores=[cores_of(rank, quarters.ranks, gpus) for rank in range(quarters.ranks)],
                sockets=[end.sock for end in ends],
                reports=[end.report for end in ends],
                pipes=[end.pipe for end in ends],
                status=status,
            )
            extra = {"PYTHONPATH": os.pathsep.join(map(str, import_paths()))} | kind.environment(gpus)
            readable = quarters.readable
            if quarters.jail.name == "none":
                cache = kernel_cache.prepared()
            else:
                cache = folder.path / SHOWN
                cache.mkdir(mode=0o755)
                readable = (*readable, cache)
            if cache is not None:
                extra["PKB_KERNEL_CACHE"] = str(cache)
            argv = [sys.executable, "-m", "sandbox.rank.launcher", launch_plan.encode(plan).decode()]
            wrapped = quarters.jail.wrap(argv, folder.path, extra, readable, kind.device_files(gpus))
            for fd in wrapped.fds:
                afterwards.callback(os.close, fd)
            limit = None if quarters.trusted else bounds.limit_bytes(quarters.ranks * kind.host_bytes)
            bound = bounds.Bound(profile, folder.path, limit)
            undo.callback(bound.close)
            process = subprocess.Popen(
                bound.starts(wrapped.argv),
                pass_fds=[*passed, *wrapped.fds],
                stdin=subprocess.DEVNULL,
                stdout=ends[0].pipe,
                stderr=ends[0].pipe,
                env=wrapped.env,
                cwd=folder.path,
                start_new_session=True,
            )
            undo.pop_all()
        return cls(quarters, process, bound, folder)

    @property
    def rank_pids(self) -> list[int]:
        """The ranks' process ids as the referee sees them, found while nothing but the harness runs in the world."""
        if not self._rank_pids:
            self._rank_pids = tree(self.pid)[-self._quarters.ranks :]
        return self._rank_pids

    # --- stopping and watching -------------------------------------------------------------------------------

    @property
    def paused(self) -> bool:
        """Whether `pause` or `halt` has stopped the processes."""
        return self._paused

    def halt(self) -> None:
        """Stops every process that is known, at once; `pause` stops those that were started meanwhile."""
        if not self._paused:
            self._paused = True
            self._stopping.halt()
            self._complete = False

    def pause(self) -> None:
        """Stops every process of the world; of one without a kernel the ranks may be all that is stopped, as they are all that
        runs. Nothing where that was done."""
        self.halt()
        if not self._complete:
            self._complete = True
            self._stopping.complete()

    def settle(self) -> None:
        """Waits until everything that was told to has stopped. Raises CannotStop."""
        self._stopping.settle()

    def activity(self) -> Activity:
        """What the stopped processes have done so far."""
        return self._stopping.activity()

    def resume(self) -> None:
        """Lets stopped processes go on."""
        if self._paused:
            self._paused = False
            self._stopping.go_on()

    def pin(self, rank: int, cores: Sequence[int]) -> None:
        """The first thread of a rank runs on these cores alone, and so do threads that it starts from now on; others stay."""
        processes.pin(self.rank_pids[rank], cores)

    def print_stacks(self) -> None:
        """Has every process that can do so print where it is, also one that is stopped."""
        self.resume()
        for pid in tree(self.pid):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)
                if processes.handles(pid, signal.SIGUSR1):
                    os.kill(pid, signal.SIGUSR1)

    # --- memory and the end ----------------------------------------------------------------------------------

    def excess(self) -> str:
        """That the world holds more than its share of memory, in a line; looked up once in a quarter of a second."""
        now = time.monotonic()
        if self._quarters.trusted or now - self._memory_checked < MEMORY_CHECK_SECONDS:
            return ""
        self._memory_checked = now
        return self._bound.excess(tree(self.pid))

    def killed(self) -> str:
        """That the operating system has ended the world for want of memory, in a line; empty where it has not."""
        return self._bound.killed()

    def show_compiled(self, digest: str) -> None:
        """Shows the world what was compiled before for the kernel that it will load (its SHA-256)."""
        if self._quarters.jail.name != "none":
            kernel_cache.show(digest, self._folder.path / SHOWN)

    def keep_compiled(self, digest: str) -> None:
        """Copies what this world has compiled into the kernel cache, for the next world of the same kernel (its SHA-256)."""
        jail = self._quarters.jail
        if not self._quarters.trusted and jail.name != "none":
            kernel_cache.harvest(tree(self.pid)[-1], jail.profile.inside(self._folder.path), digest)

    def close(self) -> bool:
        """Kills every process of the world and removes its folder; True when all are gone."""
        self.resume()  # a world may have to end itself: see sandbox/jail/ending.py
        ending.ask(self._quarters.jail.profile, self.pid)
        gone = kill_tree(self.pid)
        gone = self._bound.close() and gone
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=0.2)
        self._folder.remove()
        return gone
