"""Results of runs that end before their kernel is judged."""

from sandbox.protocol.failure_words import failure_words
from sandbox.protocol.result import Failure, Result, Seconds
from sandbox.protocol.verdict import ADVICE, Verdict

TEXT = 65536
"""Characters of a traceback that are kept, from its end."""


def unjudged_result(verdict: Verdict, failure: Failure, jail: str = "", sealed: bool = False) -> Result:
    """The result of a run whose kernel was not judged."""
    return Result(
        verdict=verdict,
        detail=failure_words(failure),
        failure=failure,
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


def harness_error_result(
    phase: str, message: str, text: str = "", jail: str = "", sealed: bool = False, advice: str = ""
) -> Result:
    """A HARNESS_ERROR in a phase: the kernel is not at fault. text: a traceback or prints. advice: instead of the usual."""
    advice = advice or ADVICE[Verdict.HARNESS_ERROR]
    failure = Failure(phase=phase, message=message, advice=advice, text=text[-TEXT:])
    return unjudged_result(Verdict.HARNESS_ERROR, failure, jail, sealed)
