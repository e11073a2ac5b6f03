"""The other kernel of a run between two kernels: why it failed."""

from arena.runs.run_state import RunState
from sandbox.protocol.events import Failure, RivalResult
from sandbox.protocol.verdict import Verdict
from screens import figures


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
