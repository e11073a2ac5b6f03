"""The state of a run, computed from the referee's events.

Screens, `watch` and replay all use the same state, so a recorded run looks exactly like a live one.
"""

from collections import deque
from dataclasses import dataclass, field

from msgspec.structs import replace

from arena.words.headline import Headline, headline_of, headline_so_far
from sandbox.protocol import events
from sandbox.protocol.verdict import Verdict

LOG_LINES = 2_000
"""Events kept for the log pane; the journal on disk keeps all of them."""


@dataclass(slots=True)
class PhaseState:
    """One phase of the run."""

    started_at: float
    """Seconds on the referee's monotonic clock."""
    limit_s: float
    seconds: float | None = None
    """Its duration; None while it runs, or when it did not end well."""
    waited: float = 0.0
    """Seconds of it in which the run waited for its devices."""


@dataclass(slots=True)
class RunState:
    """The run in progress, or the last one. `apply` is the only way to change it."""

    run_id: str = ""
    """Empty before the first run."""
    setting: events.Setting | None = None
    kernel_name: str = ""
    sha256: str = ""
    phase: str = ""
    """The phase in progress; empty between runs."""
    phases: dict[str, PhaseState] = field(default_factory=dict)
    ranks: dict[int, events.RankChecked] = field(default_factory=dict)
    checked: events.Checked | None = None
    samples: list[events.Timed] = field(default_factory=list)
    judged: events.Result | None = None
    """The result so far of a run that goes on measuring."""
    result: events.Result | None = None
    log: deque[events.Log] = field(default_factory=lambda: deque(maxlen=LOG_LINES))
    waited: float = 0.0
    """Seconds in which the run waited for its devices, without the wait in progress."""
    waiting: events.Waiting | None = None
    """The run waits for its devices, since the event's `at`."""
    cancelled_in: str | None = None
    refused: events.Refused | None = None
    fatal: events.Fatal | None = None
    """The harness itself failed; cleared by the next run."""
    jail: str = ""
    worlds: dict[str, events.WorldChanged] = field(default_factory=dict)
    """The last event of each world, by role. Kept from run to run."""

    def apply(self, event: events.AnyEvent) -> None:
        """Applies one event. Events of a run that is no longer shown are ignored."""
        match event:
            case events.Ready():
                self.jail = event.jail
            case events.WorldChanged():
                self.worlds[event.role] = event
            case events.Calibrated() | events.TransfersTimed() | events.WorldOffsets():
                return
            case events.Fatal():
                self.fatal = event
                self.phase = ""
            case events.RunStarted():
                self._begin(event)
            case events.Refused() | events.Finished() | events.Cancelled() if (
                not self.running and event.run_id != self.run_id
            ):
                self._forget(event.run_id)  # the run never began
                self.apply(event)
            case _ if event.run_id != self.run_id:
                return
            case events.Waiting():
                self.waiting = replace(event, at=self.waiting.at) if self.waiting else event
            case events.PhaseStarted():
                self._end_waiting(event.at)
                self.phase = event.phase
                self.phases[event.phase] = PhaseState(started_at=event.at, limit_s=event.limit_s)
            case events.PhaseEnded():
                self._end_phase(event)
            case events.RankChecked():
                self.ranks[event.rank] = event
            case events.Checked():
                self.checked = event
            case events.Timed():
                self._end_waiting(event.at)
                self.samples.append(event)
            case events.Log():
                self.log.append(event)
            case events.Judged():  # a round without times ends waiting, too
                self._end_waiting(event.at)
                self.judged = event.result
            case events.Finished():
                self._end_waiting(event.at)
                self.result = event.result
                if self.verdict is Verdict.PASS and (timed := self.phases.get("time")) is not None:
                    timed.seconds = event.result.seconds.time  # measuring on has begun the phase again after each wait
                self.sha256 = event.sha256
                self.phase = ""
            case events.Refused():
                self.refused = event
                self.phase = ""
            case events.Cancelled():
                self.cancelled_in = event.phase
                self.phase = ""

    def _begin(self, event: events.RunStarted) -> None:
        self._forget(event.run_id)
        self.setting = event.setting
        self.kernel_name = event.kernel_name
        self.sha256 = event.sha256

    def _forget(self, run_id: str) -> None:
        fresh = RunState(run_id=run_id, jail=self.jail, worlds=self.worlds)
        for name in RunState.__slots__:
            setattr(self, name, getattr(fresh, name))

    def _end_waiting(self, at: float) -> None:
        if self.waiting is not None:
            self.waited += at - self.waiting.at
            if (phase := self.phases.get(self.phase)) is not None:
                phase.waited += at - self.waiting.at
            self.waiting = None

    def _end_phase(self, event: events.PhaseEnded) -> None:
        phase = self.phases.get(event.phase)
        if phase is None:
            phase = self.phases[event.phase] = PhaseState(started_at=event.at, limit_s=0.0)
        phase.seconds = event.seconds
        if self.phase == event.phase:  # compiling is a part of loading, or of the check
            self.phase = next((name for name, each in reversed(self.phases.items()) if each.seconds is None), "")

    @property
    def running(self) -> bool:
        """Whether a run has started and has not finished, failed, been cancelled or been refused."""
        ended = self.result is not None or self.cancelled_in is not None or self.refused is not None
        return bool(self.run_id) and not ended and self.fatal is None

    @property
    def measuring_on(self) -> bool:
        """Whether the verdict is known and the run goes on measuring."""
        return self.judged is not None and self.running

    @property
    def verdict(self) -> Verdict | None:
        """The verdict, as soon as one is known: that of the correctness check, then the final one."""
        if self.result is not None:
            return self.result.verdict
        return self.checked.verdict if self.checked is not None else None

    @property
    def told(self) -> events.Result | None:
        """The newest result with a verdict on the speed: the final one, or while it measures on the first one."""
        return self.result or self.judged

    @property
    def failure(self) -> events.Failure | None:
        """The failure of the kernel, if it failed."""
        if self.result is not None and self.result.failure is not None:
            return self.result.failure
        return self.checked.failure if self.checked is not None else None

    @property
    def headline(self) -> Headline | None:
        """The speedup with its clock and outcome: final if there is a result, else so far; None: nothing is claimed."""
        headline = headline_of(self.told) if self.told is not None else None
        if self.result is not None or (self.told is not None and headline is None) or not self.samples:
            return headline
        return headline_so_far(self.samples[-1])

    @property
    def seconds(self) -> float:
        """Total seconds of the phases that have ended."""
        return sum(self.phases[name].seconds or 0.0 for name in events.PHASES if name in self.phases)
