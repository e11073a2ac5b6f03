"""Verdicts in words: the meaning of a rank's failure."""

import os
import signal

from sandbox.protocol.events import Failure, OutputError, Result
from sandbox.protocol.verdict import ADVICE, Verdict
from sandbox.referee.stacks import StackPlace
from sandbox.worlds.failures import WorldFailed

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
