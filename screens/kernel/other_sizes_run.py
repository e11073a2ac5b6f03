"""Runs of the newest kernel in other settings: the one in progress, and the results so far."""

from dataclasses import dataclass, replace

from arena.errors import RunCancelled
from arena.records.run_record import OtherSize, holds
from arena.runs.engine import Engine
from arena.runs.judge import RunRequest
from arena.runs.other_sizes import OtherSizesProgress, judge_other_sizes
from arena.runs.run_state import RunState
from sandbox.protocol.events import AnyEvent


@dataclass(frozen=True)
class OtherSizesUpdate:
    """Results in other settings, for the pane that shows them."""

    found: tuple[OtherSize, ...] = ()
    progress: OtherSizesProgress | None = None
    """Progress of the setting that is judged now; None: none is."""
    phase: str = ""
    """The phase of that run; empty before it starts."""
    ended: bool = False
    """Whether all settings were judged."""

    @property
    def holds(self) -> str:
        """ "all", "some" or "none", as in `run --json`; empty until all settings were judged."""
        return holds(self.found) if self.ended else ""


class OtherSizesRun:
    """Judges a kernel at other sizes, and separates the events of these runs from those of the kernel's own run."""

    def __init__(self) -> None:
        self.update = OtherSizesUpdate()
        self._state = RunState()

    @property
    def running(self) -> bool:
        """Whether a setting is being judged."""
        return self.update.progress is not None

    @property
    def timing(self) -> bool:
        """Whether the kernel is being timed in another setting."""
        return self.running and self.update.phase == "time"

    async def judge(self, engine: Engine, request: RunRequest, *, timed: bool) -> None:
        """Judges the kernel in other settings, until all are judged or a run is cancelled.

        Raises:
            MachineError: the runs could not be made.
        """
        try:
            found = await judge_other_sizes(engine, request, timed=timed, listener=self._take)
            self.update = OtherSizesUpdate(tuple(found), ended=True)
        except RunCancelled:
            pass  # keeps the results so far
        finally:
            self.update = replace(self.update, progress=None)

    async def stop(self, engine: Engine) -> None:
        """Cancels what is being judged, and waits until it has ended."""
        if self.running:
            await engine.cancel()
            self.update = replace(self.update, progress=None)

    def clear(self) -> None:
        """Removes the results, which belong to an earlier kernel."""
        self.update = OtherSizesUpdate()

    def takes(self, event: AnyEvent, own: str) -> bool:
        """Applies an event of a run in another setting; returns False for others. own: id of the kernel's own run."""
        if not self.running or getattr(event, "run_id", own) == own:
            return False
        self._state.apply(event)
        self.update = replace(self.update, phase=self._state.phase)
        return True

    def _take(self, progress: OtherSizesProgress) -> None:
        self._state = RunState()
        self.update = OtherSizesUpdate(progress.found, progress)
