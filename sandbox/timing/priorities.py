"""The priorities of one kernel's processes. A kernel that raised its own would gain wherever other programs use the cores."""

from collections.abc import Sequence

from sandbox.machine.devices.kind import DeviceKind
from sandbox.machine.scheduling import Share
from sandbox.worlds.world import World

MOST_SESSIONS = 2
"""Sessions that processes other than the ranks may begin during timing. Each gets the lowest priority."""


class Priorities:
    """What a kernel's world gets of the cores, from the first check on."""

    def __init__(self, kind: DeviceKind) -> None:
        self._kind = kind
        self._ranks: dict[int, Share] = {}
        """Of each rank's process, at the first check."""
        self._settled: set[str] = set()
        """Sessions of other processes, with the nice values that they were given."""
        self._begun = 0
        """Sessions that were not there at the first check."""

    def check(self, world: World) -> str:
        """The fault of a stopped world in one line; empty if there is none. The first check notes what there is."""
        helpers = world.processes.helpers()
        if not self._ranks:
            self._ranks = {pid: self._kind.share_of_cores(pid) for pid in world.processes.rank_pids}
            self._settle(helpers)
            if len({share.session for share in self._ranks.values()}) > 1:
                return "a rank of the kernel began a session of its own: all ranks share one"
            return ""
        for pid, before in self._ranks.items():
            now = self._kind.share_of_cores(pid)
            if now.session and now != before:
                return f"the kernel changed the priority of its process during timing: from {before} to {now}"
        self._begun += self._settle(helpers)
        if self._begun <= MOST_SESSIONS:
            return ""
        return f"the kernel's processes began {self._begun} sessions during timing; at most {MOST_SESSIONS} are allowed"

    def _settle(self, helpers: Sequence[int]) -> int:
        """Gives new sessions the lowest priority; returns their number."""
        found = 0
        for pid in helpers:
            session = self._kind.share_of_cores(pid).session
            if session and session not in self._settled | {share.session for share in self._ranks.values()}:
                found += 1
                self._kind.settle_helper(pid)
                self._settled.add(self._kind.share_of_cores(pid).session)
        return found
