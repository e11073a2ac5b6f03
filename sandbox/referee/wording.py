"""A verdict in words: what a rank's end means, and the one line that people read first."""

import os
import signal
from dataclasses import dataclass

from sandbox.protocol.events import Failure, OutputError
from sandbox.protocol.verdict import Verdict
from sandbox.worlds.failures import WorldFailed


def detail(verdict: Verdict, failure: Failure | None) -> str:
    """One line: what, in which phase, on which rank, where first, expected and got, and what to do."""
    if failure is None:
        return ""
    parts = [failure.message.splitlines()[0].rstrip(".") if failure.message else verdict.value]
    where = [f"phase {failure.phase}"]
    if failure.rank is not None:
        where.append(f"rank {failure.rank}")
    if failure.line:
        where.append(f"line {failure.line}")
    if failure.index is not None:
        where.append(f"first at {failure.index}: expected {failure.expected}, got {failure.got}")
    return f"{parts[0]} ({', '.join(where)}). {failure.advice}".strip()


def whole(figures: OutputError) -> str:
    """What is wrong with an output each of whose elements is within its limit."""
    error = f"relative RMS error {figures.rms:.2e}, limit {figures.rms_limit:.2e}"
    return f"output {figures.output} is off as a whole ({error}), though no element by itself"


def _first_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[0].strip()[:300] if lines else ""


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


@dataclass(frozen=True)
class Meaning:
    """What a rank's failure means."""

    verdict: Verdict
    message: str
    """One line."""
    text: str = ""
    """A traceback, or what a compiler said."""
    advice: str = ""
    """In place of the verdict's own, where more is known."""


def meaning(failed: WorldFailed) -> Meaning:
    """What a rank's failure means."""
    if failed.kind == "DIED":
        status = failed.status
        if status >= 0 and os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            name = signal.Signals(number).name if number in signal.valid_signals() else str(number)
            verdict = Verdict.OUT_OF_MEMORY if number == signal.SIGKILL else Verdict.CRASH
            return Meaning(verdict, f"the process was killed by {name}")
        how = f"exited with status {os.WEXITSTATUS(status)}" if status >= 0 else "ended"
        message = f"the process {how} before its work was done"
        return Meaning(Verdict.CRASH, message, advice="Return from the kernel; do not end its process.")
    if failed.kind == "SYNTAX":
        lines = failed.text.strip().splitlines()
        return Meaning(Verdict.COMPILE_ERROR, lines[-1][:300] if lines else "syntax error", failed.text)
    message = _first_line(failed.text) or failed.kind
    if failed.kind == "RAISED":
        return Meaning(
            Verdict.CRASH, f"an exception ended solution(): {message}", failed.text, _raised(failed)
        )
    advice = _raised(failed) if failed.kind == "LOAD_FAILED" and _TRACEBACK in failed.text else ""
    return Meaning(_REPORTED.get(failed.kind, Verdict.PROTOCOL), message, failed.text, advice)


def _raised(failed: WorldFailed) -> str:
    """What to do about an exception."""
    if failed.line:
        return "Correct that line; the traceback shows how it was reached."
    return "It was raised outside the kernel's own lines; the traceback shows where."
