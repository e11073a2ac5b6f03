"""CPU time of a kernel's processes while they were stopped: none, unless something continued one of them."""

from sandbox.worlds.stopping import Activity

STOPPED_SECONDS, STOPPED_SHARE = 200e-6, 0.02
"""CPU time in one rest that is no sign of work: threads that get a core only to find that they are stopped."""
DISTURBED, DISTURBED_SHARE = 2, 0.1
"""Rests with more than that are a fault once there are more than so many of them, and more than this share of all."""


class StoppedActivity:
    """The rests of one kernel in a run: while others were timed, and while its own inputs were filled in."""

    def __init__(self) -> None:
        self.count = 0
        self.disturbed = 0
        self.cpu_seconds = 0.0
        """Used in the disturbed ones."""
        self.processes = 0
        """Started in them."""

    def note(self, before: Activity, after: Activity, seconds: float) -> None:
        """A rest of so many seconds, by what the processes had done at its beginning and at its end."""
        used = after.cpu_seconds - before.cpu_seconds
        started = len(after.pids - before.pids)
        self.count += 1
        if started or used > max(STOPPED_SECONDS, STOPPED_SHARE * seconds):
            self.disturbed += 1
            self.cpu_seconds += max(used, 0.0)
            self.processes += started

    def fault(self, other: str) -> str:
        """What is wrong with these rests, in a line; empty where nothing is. other: the side that was timed meanwhile."""
        if self.disturbed <= max(DISTURBED, DISTURBED_SHARE * self.count):
            return ""
        started = f" and started {self.processes} processes" if self.processes else ""
        return (
            f"the kernel's processes used {self.cpu_seconds:.3g} s of CPU{started} though they were stopped, "
            f"in {self.disturbed} of {self.count} rests, while the {other} was timed or inputs were filled in"
        )
