"""What the panes of a kernel draw: the state of its run, and what was logged since the last update."""

from dataclasses import dataclass, field

from arena.runs.run_state import RunState
from sandbox.protocol import events
from sandbox.protocol.verdict import Verdict
from screens.kernel.log_lines import LogLine
from screens.kernel.other_kernel import other_failure
from screens.kernel.other_sizes_run import OtherSizesUpdate


@dataclass(frozen=True)
class RunUpdate:
    """The state of the run, and its log lines since the last update."""

    state: RunState
    new_run: bool
    """Whether `lines` begin a new log."""
    lines: list[LogLine]
    advice: str = ""
    """What makes smaller differences detectable, with the key that measures longer; empty when nothing is needed."""
    profile_key: str = ""
    """The key that profiles the kernel; empty if no profile can be made or nothing was timed."""

    versus: str = ""
    """Name of the kernel that replaces the baseline; empty if none does."""
    others: OtherSizesUpdate = field(default_factory=OtherSizesUpdate)
    """Results at other sizes."""
    jump_key: str = ""
    """The key that shows the letters of the panes."""

    @property
    def failed(self) -> bool:
        """Whether there is a verdict other than PASS."""
        return self.state.verdict not in (None, Verdict.PASS)

    @property
    def failure(self) -> events.Failure | None:
        """The failure to show: the kernel's, or else that of the kernel that replaces the baseline."""
        return self.state.failure if self.failed else other_failure(self.state)
