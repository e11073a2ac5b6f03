"""Activity of a kernel's processes while they were stopped. It is zero unless something continued one of them."""

from sandbox.worlds.stopping import Activity

STOPPED_SECONDS, STOPPED_SHARE = 200e-6, 0.02
"""CPU time in one stop that stopping itself takes."""
DISTURBED, DISTURBED_SHARE = 2, 0.1
"""Number and share of stops with more CPU time above which there is a fault."""


class StoppedActivity:
    """The activity of one kernel in all stops of a run."""

    def __init__(self) -> None:
        self.count = 0
        self.disturbed = 0
        self.cpu_seconds = 0.0
        """CPU time in disturbed stops."""
        self.processes = 0
        """Processes started in disturbed stops."""

    def note(self, before: Activity, after: Activity, seconds: float) -> None:
        """Adds a stop of so many seconds, from the activity at its beginning and end."""
        used = after.cpu_seconds - before.cpu_seconds
        started = len(after.pids - before.pids)
        self.count += 1
        if started or used > max(STOPPED_SECONDS, STOPPED_SHARE * seconds):
            self.disturbed += 1
            self.cpu_seconds += max(used, 0.0)
            self.processes += started

    def fault(self, other: str) -> str:
        """The fault in one line; empty if there is none. other: the side that was timed meanwhile."""
        if self.disturbed <= max(DISTURBED, DISTURBED_SHARE * self.count):
            return ""
        started = f" and started {self.processes} processes" if self.processes else ""
        return (
            f"the kernel's processes used {self.cpu_seconds:.3g} s of CPU time{started} while they were stopped, "
            f"in {self.disturbed} of {self.count} stops, while the {other} was timed or inputs were completed"
        )
