"""The result of a run that the harness could not finish. The kernel is not at fault."""

from sandbox.protocol.events import Failure, Result, Seconds
from sandbox.protocol.verdict import ADVICE, Verdict

TEXT = 65536
"""Characters of a traceback that are kept, from its end."""


def harness_error_result(phase: str, message: str, text: str = "", jail: str = "", sealed: bool = False) -> Result:
    """A HARNESS_ERROR in a phase. message: one sentence without a full stop. text: a traceback or prints."""
    advice = ADVICE[Verdict.HARNESS_ERROR]
    return Result(
        verdict=Verdict.HARNESS_ERROR,
        detail=f"{message} (phase {phase}). {advice}",
        failure=Failure(phase=phase, message=message, advice=advice, text=text[-TEXT:]),
        paper_rule=None,
        error=None,
        speedup=None,
        baseline_us=None,
        contender_us=None,
        roofline=None,
        seconds=Seconds(),
        jail=jail,
        sealed=sealed,
    )
