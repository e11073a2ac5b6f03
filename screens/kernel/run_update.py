"""What the panes of a kernel draw: the state of its run, its events as lines of the log, and why the other kernel failed."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field

from textual.message import Message

from arena.records.report_text import output_of
from arena.runs.run_state import RunState
from sandbox.protocol import events
from sandbox.protocol.events import Failure, RivalResult
from sandbox.protocol.kernel_files import MAIN
from sandbox.protocol.result import names_line
from sandbox.protocol.verdict import Verdict
from screens import figures
from screens.kernel.other_sizes_run import OtherSizesUpdate


def failed_other(state: RunState) -> RivalResult | None:
    """The result of the other kernel, if it failed and the kernel itself passed; else None."""
    rival = state.result.rival if state.result is not None else None
    if not rival or rival.verdict is Verdict.PASS or state.verdict is not Verdict.PASS:
        return None
    return rival


def other_failure(state: RunState) -> Failure | None:
    """The failure of the other kernel, if `failed_other` returns its result."""
    rival = failed_other(state)
    if rival is None:
        return None
    message = rival.detail or figures.verdict_words(rival.verdict)
    return rival.failure or Failure(phase="", message=message, advice="")


@dataclass
class LineJump(Message):
    """The user asked to go to a line of the kernel (1-based)."""

    line: int
    file: str = MAIN
    """A file that the kernel's folder does not have means kernel.py: a compiler names a file that the kit writes."""


_NAMED = re.compile(r"""([\w./+@=-]+\.\w+)(?:"|')?(?:, line |:|\()(\d{1,6})|^line (\d{1,6})\b""")


def named_place(text: str) -> tuple[str, int] | None:
    """The file of the kernel and the line in it, 1-based, that a line of a traceback or a compiler names."""
    if "site-packages" in text or "/lib/python" in text:
        return None
    match = _NAMED.search(text)
    return (match[1] or MAIN, int(match[2] or match[3])) if match else None


def place_of(failure: Failure | None, files: Collection[str]) -> tuple[str, int] | None:
    """The file and the line of a failure: the last call in a file of the kernel, or a compiler's first message."""
    if failure is None:
        return None
    text = output_of(failure) if files else ""  # asked at each draw; a kernel of one file has one place
    named = [place for row in text.splitlines() if (place := named_place(row)) and place[0] in (MAIN, *files)]
    found = named[-1 if 'File "' in text else 0] if named else (MAIN, failure.line)
    return (found[0], found[1]) if found[1] is not None else None


@dataclass(frozen=True)
class LogLine:
    """Text for the pane. It may have several lines, and control characters, which the pane removes."""

    text: str
    rank: int | None = None
    """None: a message of the referee."""
    kind: str = "text"
    """ "text", "error" or "note"."""


def lines_of(event: events.AnyEvent, told: Verdict | None = None) -> list[LogLine]:
    """Returns the log lines of an event; none for most events.

    told: the verdict of the run's failure, if the log already has it. Then the end of the run does not repeat it, and
    the duration of the failed phase is left out.
    """
    match event:
        case events.RunStarted():
            return [LogLine(f"run {event.run_id} · {event.kernel_name} · {event.sha256[:10]}", kind="note")]
        case events.PhaseEnded() if told is None:
            return [LogLine(f"{event.phase} took {figures.seconds(event.seconds)} s", kind="note")]
        case events.Log(rank=-1):
            return [LogLine(event.text.rstrip(), kind="note")]
        case events.Log():
            return [LogLine(event.text, event.rank)]
        case events.Checked():
            words = f"{figures.verdict_words(event.verdict)[2:]} after {event.seconds:.2f} s"
            return [*_failure(event.failure), LogLine(words, kind="note")]
        case events.Finished():
            words = f"finished: {figures.verdict_words(event.result.verdict)[2:]} in {event.result.seconds.total:.2f} s"
            labels = [LogLine(", ".join(event.result.labels), kind="note")] if event.result.labels else []
            other = _other_kernel(event.result.rival or None)
            if event.result.verdict == told:
                return [*other, *labels]
            return [*_failure(None if told else event.result.failure), *other, *labels, LogLine(words, kind="note")]
        case events.Cancelled():
            return [LogLine(f"cancelled in {event.phase}", kind="note")]
        case events.Refused():
            return [LogLine(f"not run: {event.message} → {event.advice}", kind="error")]
        case events.Fatal():
            return [LogLine(f"harness: {event.message}\n{event.text}".rstrip(), kind="error")]
    return []


def _other_kernel(rival: events.RivalResult | None) -> list[LogLine]:
    """The verdict and the failure of the other kernel of the run, if it failed."""
    if rival is None or rival.verdict is Verdict.PASS:
        return []
    lines = [LogLine(f"other kernel: {figures.verdict_words(rival.verdict)}", kind="error")]
    text = output_of(rival.failure) if rival.failure is not None else ""
    return lines + [LogLine(words, kind="error") for words in (rival.detail, text) if words]


def _failure(failure: events.Failure | None) -> list[LogLine]:
    if failure is None:
        return []
    text = output_of(failure)
    lines = [LogLine(failure.message, failure.rank, "error")]
    if failure.line is not None and not names_line(text or failure.message, failure.line):
        lines.append(LogLine(f"line {failure.line} of the kernel", failure.rank, "error"))
    if text:
        lines.append(LogLine(text, failure.rank, "error"))
    return lines


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
    place: tuple[str, int] | None = None
    """The file and the line of the kernel's failure; None: it names none."""

    @property
    def failed(self) -> bool:
        """Whether there is a verdict other than PASS."""
        return self.state.verdict not in (None, Verdict.PASS)

    @property
    def failure(self) -> events.Failure | None:
        """The failure to show: the kernel's, or else that of the kernel that replaces the baseline."""
        return self.state.failure if self.failed else other_failure(self.state)
