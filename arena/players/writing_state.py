"""The state of a model's or program's play, folded from its trace. Live views and replays use it."""

from dataclasses import dataclass, field

from arena.models.budget import CHARACTERS_PER_TOKEN, Spent
from arena.models.conversation import Message
from arena.players import trace
from arena.players.attempts import KernelState, best_of, score
from arena.players.tools import RUN

PREPARING, WAITING, THINKING, WRITING, JUDGING = "preparing", "waiting", "thinking", "writing", "judging"


@dataclass
class WritingState:
    """The state so far. Only `apply` changes it."""

    kernels: list[KernelState] = field(default_factory=list)
    doing: str = PREPARING
    """PREPARING, WAITING for the model, THINKING, WRITING, JUDGING, or "calls compile"."""
    since: float = 0.0
    """Time at which `doing` last changed, in seconds since the trace began."""
    writing: int = 1
    """Number of the kernel that is being written."""
    text: str = ""
    """Text of the answer that is being written."""
    thought: str = ""
    """The reasoning before that answer, if the provider shows it."""
    system: str = ""
    asked: tuple[Message, ...] = ()
    """The conversation that the model answers."""
    trouble: str = ""
    """The last failed request, in words; empty once the model continues."""
    spent: Spent = field(default_factory=Spent)
    ended: trace.Ended | None = None
    at: float = 0.0
    """Time of the last event, in seconds since the trace began."""

    @property
    def best(self) -> KernelState | None:
        """The best kernel that was judged; None if no kernel has a verdict other than HARNESS_ERROR."""
        found = best_of(self.kernels)
        return found if found is not None and score(found.report) > (0, 0.0) else None

    @property
    def tokens_written(self) -> int:
        """Tokens of the answer that is being written, reasoning included, estimated from its length."""
        return round((len(self.text) + len(self.thought)) / CHARACTERS_PER_TOKEN)

    def kernel(self, number: int) -> KernelState | None:
        """Returns the kernel with this number; None if there is none."""
        return next((kernel for kernel in self.kernels if kernel.number == number), None)

    def apply(self, event: trace.AnyTraceEvent) -> None:
        """Applies one event."""
        self.at = event.at
        match event:
            case trace.Asked():
                self.system, self.asked = event.system, tuple(event.messages)
                self.writing, self.text, self.thought = event.step, "", ""
                self._do(WAITING)
            case trace.Mused():
                self.thought += event.text
                self._do(THINKING)
            case trace.Wrote() | trace.Drafted():
                self.text += event.text
                self._do(WRITING)
            case trace.Counted():
                self.spent = event.spent
            case trace.Retried():
                self.trouble = f"{event.reason.rstrip('.')}; again in {event.wait_s:.0f} s"
            case trace.Called():
                self._do(JUDGING if event.tool == RUN else f"calls {event.tool}")
            case trace.Returned():
                self._do(WAITING)
            case trace.Answered():
                self._answered(event)
            case trace.Judged():
                self._judged(event)
            case trace.Ended():
                self.ended, self.spent = event, event.spent

    def _do(self, doing: str) -> None:
        if doing != self.doing:
            self.doing, self.since = doing, self.at
        if doing != WAITING:
            self.trouble = ""

    def _answered(self, event: trace.Answered) -> None:
        if self.kernel(event.step) is None:  # otherwise the tool `run` has judged it already
            kernel = KernelState(event.step, self.text, event.kernel, event.reason, event.spent)
            self.kernels.append(kernel)
        self.writing, self.text, self.thought = event.step + 1, "", ""
        self._do(JUDGING if event.source else WAITING)

    def _judged(self, event: trace.Judged) -> None:
        kernel = self.kernel(event.step)
        if kernel is not None:
            kernel.report, kernel.printed = event.report, event.printed
            kernel.judged_at = event.at
        self._do(WAITING)
