"""Verdicts in words: the meaning of a rank's failure, and the printed stacks of ranks that did not answer in time.

The prints are untrusted. A forged stack can only change the line in the verdict of its own kernel.
"""

import os
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from sandbox.protocol.events import Failure, OutputError, Result
from sandbox.protocol.verdict import ADVICE, Verdict
from sandbox.worlds.failures import WorldFailed

_SECTION = re.compile(r"^(?:Current thread|Thread) .*\(most recent call first\):$", re.MULTILINE)
_FRAME = re.compile(r'^  File "([^"\n]{1,500})", line (\d{1,7}) in ([^\n]{1,200})$', re.MULTILINE)
TELLS_EXITS = "/sandbox/rank/rank.py"
"""File of the innermost frame of a rank that ended itself: the function there prints where it was called."""
_WAITS = ("/torch/", "/sandbox/kit/")
"""A rank whose innermost frame is in one of these folders waits in a library call."""


@dataclass(frozen=True)
class StackPlace:
    """The place in the kernel where a rank is."""

    rank: int
    line: int
    """Line of the kernel file, 1-based."""
    waits: bool
    """Whether it is in a call to torch or the kit."""
    stack: str = field(default="", compare=False)
    """The calls down to the first one of the kernel file, innermost first."""

    def __str__(self) -> str:
        return f"rank {self.rank} {'waits' if self.waits else 'is'} at line {self.line}"


def place_of(rank: int, printed: str, kernel_name: str, lines: int) -> StackPlace | None:
    """The place in the last stack of `printed`; None if there is none.

    kernel_name: the kernel's file; lines: its number of lines.
    """
    last = printed.rfind("Current thread ")
    if last < 0:
        return None
    sections = _SECTION.split(printed[last:])
    frames = _FRAME.findall(sections[1]) if len(sections) > 1 else []
    if frames and frames[0][0].endswith(TELLS_EXITS):
        del frames[0]
    name = PurePosixPath(kernel_name).name
    own = [
        at
        for at, (path, number, _) in enumerate(frames)
        if PurePosixPath(path).name == name and 0 < int(number) <= lines
    ]
    if not own:
        return None
    waits = any(part in frames[0][0] for part in _WAITS)
    return StackPlace(rank, int(frames[own[0]][1]), waits, _folded(frames, own[-1], name))


def _folded(frames: Sequence[tuple[str, str, str]], last: int, name: str) -> str:
    """A stack without the frames of the harness, which lie below the kernel's own."""
    shown = [
        f'  File "{name if PurePosixPath(path).name == name else path}", line {number}, in {function}'
        for path, number, function in frames[: last + 1]
    ]
    below = len(frames) - last - 1
    folded = [f"  ({below} more of the harness)"] if below else []
    return "\n".join(["Stack (most recent call first):", *shown, *folded])


def places_words(places: list[StackPlace], ranks: Sequence[int]) -> str:
    """The places of blocked ranks in words; one place if it is the same for all."""
    same = {(place.line, place.waits) for place in places}
    if len(same) == 1 and len(places) == len(ranks) > 1:
        return f"{'both' if len(ranks) == 2 else 'all'} {'wait' if places[0].waits else 'are'} at line {places[0].line}"
    return ", ".join(map(str, places))


def blocked_rank(places: list[StackPlace]) -> StackPlace | None:
    """The rank that probably blocks the others: one that does not wait, else the first."""
    return next((place for place in places if not place.waits), places[0] if places else None)


START, END, GAP = 200, 95, " ... "
"""Characters of the start and of the end of a message that is longer than both, and what stands between them."""


def whole(figures: OutputError) -> str:
    """The message for an output whose RMS error exceeds its limit although every element is within its own limit."""
    error = f"{figures.rms:.2e} > {figures.rms_limit:.2e}"
    return (
        f"the relative RMS error of output {figures.output} exceeds its limit ({error}), "
        "although every element is within its own limit"
    )


def _first_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return _shortened(lines[0].strip()) if lines else ""


def _shortened(line: str) -> str:
    """The line, without its middle if it is long: the end of a message often has the reason."""
    short = line[:START] + GAP + line[-END:]
    return short if len(short) < len(line) else line


_REPORTED = {
    "SYNTAX": Verdict.COMPILE_ERROR,
    "COMPILE_FAILED": Verdict.COMPILE_ERROR,
    "LOAD_FAILED": Verdict.LOAD_ERROR,
    "RAISED": Verdict.CRASH,
    "BAD_STRUCTURE": Verdict.WRONG_STRUCTURE,
    "MUTATED": Verdict.MUTATED_INPUT,
    "NO_MEMORY": Verdict.OUT_OF_MEMORY,
    "DEVICE": Verdict.DEVICE_ERROR,
    "STALLED": Verdict.TIMEOUT,
    "FLOOD": Verdict.OUTPUT_FLOOD,
    "PROTOCOL": Verdict.PROTOCOL,
}


_TRACEBACK = "Traceback (most recent call last)"
_KILLED = (
    "SIGKILL usually means that memory ran out: allocate less, or reuse buffers. Otherwise find who ended the process."
)


def lost_a_rank(result: Result) -> bool:
    """Whether a rank ended by a signal or by itself. Only a kernel is at fault for that, never the baseline."""
    killed = result.verdict is Verdict.OUT_OF_MEMORY and signal.SIGKILL.name in result.detail
    return killed or result.verdict is Verdict.CRASH


def explain(failed: WorldFailed, phase: str, place: StackPlace | None = None) -> tuple[Verdict, Failure]:
    """The verdict on a rank's failure, and its description.

    phase: the present phase of the run; place: where a rank that died was.
    """
    verdict, message, advice = _explained(failed)
    line, text = (place.line, place.stack) if place else (failed.line, "" if failed.kind == "DIED" else failed.text)
    phase = "compile" if verdict is Verdict.COMPILE_ERROR else phase
    return verdict, Failure(
        phase=phase, message=message, advice=advice or ADVICE[verdict], rank=failed.rank, line=line or None, text=text
    )


def _explained(failed: WorldFailed) -> tuple[Verdict, str, str]:
    """(verdict, message in one line, special advice or empty)."""
    if failed.kind == "DIED":
        status = failed.status
        if status >= 0 and os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            name = signal.Signals(number).name if number in signal.valid_signals() else str(number)
            verdict, advice = (Verdict.OUT_OF_MEMORY, _KILLED) if number == signal.SIGKILL else (Verdict.CRASH, "")
            return verdict, f"the process was killed by {name}", advice
        how = f"exited with status {os.WEXITSTATUS(status)}" if status >= 0 else "ended"
        advice = "Return from solution() and do not end the process."
        return Verdict.CRASH, f"the process {how} before its work was done", advice
    if failed.kind == "SYNTAX":
        lines = failed.text.strip().splitlines()
        message = _shortened(lines[-1]) if lines else "syntax error"
        shown = failed.line or ", line " in failed.text  # of a file beside kernel.py, the text has the line
        return Verdict.COMPILE_ERROR, message, "" if shown else "Fix the source: it is not valid Python."
    message = _first_line(failed.text) or failed.kind
    if failed.kind == "RAISED":
        return Verdict.CRASH, f"an exception ended solution(): {message}", _raised(failed)
    advice = _raised(failed) if failed.kind == "LOAD_FAILED" and _TRACEBACK in failed.text else ""
    return _REPORTED.get(failed.kind, Verdict.PROTOCOL), message, advice


def _raised(failed: WorldFailed) -> str:
    """The advice on an exception."""
    if failed.line:
        return "Correct this line. The traceback shows the calls that lead to it."
    return "No line of the kernel raised it. The traceback shows where it was raised."
