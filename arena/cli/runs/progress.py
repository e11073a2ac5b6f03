"""Shows a run's progress on stderr: one line that is redrawn on a terminal, else one line per phase."""

from arena.cli.diagnostics import LiveLine, complain, say
from arena.cli.output import speedup_text
from arena.runs.other_sizes import OtherSizesProgress
from arena.runs.run_request import Notice
from arena.runs.run_state import RunState
from arena.words.headline import headline_so_far
from sandbox.protocol.events import PHASES, AnyEvent, Log, PhaseEnded, PhaseStarted, RunStarted


class RunProgress:
    """Shows the events of the engine."""

    def __init__(self, most_s: float | None = None) -> None:
        """most_s: maximum seconds of timing; None: unknown, or the number of rounds is fixed."""
        self._most_s = most_s
        self._state = RunState()
        self._shown = LiveLine()

    def event(self, event: AnyEvent) -> None:
        """Updates the display after an event."""
        self._state.apply(event)
        if isinstance(event, Log) and event.rank < 0:
            self.clear()
            say(event.text.rstrip())
        elif self._shown.live:
            self._shown.draw(self._line(), force=isinstance(event, PhaseStarted | PhaseEnded))
        elif isinstance(event, PhaseEnded):
            say(f"{event.phase} {event.seconds:.2f} s")
        elif isinstance(event, RunStarted):
            setting = event.setting
            where = f"world {setting.world} {setting.device}"
            say(f"{event.kernel_name}: {setting.preset} {setting.dtype} {where}")

    def notice(self, notice: Notice) -> None:
        """Shows a notice on a line of its own."""
        self.clear()
        complain(notice.message, notice.advice)

    def other_size(self, progress: OtherSizesProgress) -> None:
        """Shows which other setting is judged next. Uses its limit for timing from now on."""
        self.clear()
        self._most_s = progress.most_s
        say(progress.words)

    def clear(self) -> None:
        """Erases the redrawn line."""
        self._shown.clear()

    def _line(self) -> str:
        parts = []
        for name in PHASES:
            phase = self._state.phases.get(name)
            if phase is None:
                continue
            parts.append(f"✓{name} {phase.seconds:.2f}" if phase.seconds is not None else f"▸{name}")
        if self._state.samples:
            sample = self._state.samples[-1]
            parts.append(f"{sample.round}/{sample.rounds}")
            parts.append(speedup_text(headline_so_far(sample)))
            if self._state.phase == "time" and self._most_s is not None:
                parts.append(f"goes on up to {self._most_s:g} s")
        return "  ".join(parts)
