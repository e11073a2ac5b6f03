"""A model's attempts at one problem: their scores, and pass@k over all of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from arena.models.answer import ModelAnswer
from arena.models.budget import Spent
from arena.records.code_hash import code_hash
from arena.records.ranking import Measurement, Ranked, ranked
from arena.records.run_record import RunRecord
from arena.runs.judge import Judgement
from sandbox.protocol.kernel_files import Kernel
from sandbox.protocol.verdict import Verdict

GAIN = 1.02
"""Smallest ratio of two speedups that counts as a gain. Two runs of the same kernel differ by about this ratio."""

_STAGES = {
    **dict.fromkeys((Verdict.COMPILE_ERROR, Verdict.LOAD_ERROR), 1),
    Verdict.WRONG_STRUCTURE: 3,
    **dict.fromkeys((Verdict.WRONG_RESULT, Verdict.NONFINITE, Verdict.MUTATED_INPUT, Verdict.LATE_OUTPUT), 4),
    Verdict.PASS: 5,
}
"""The stage that a kernel reached: 1 not compiled, 2 not finished, 3 wrong structure, 4 wrong values, 5 right."""
RETURNS = frozenset(verdict for verdict, stage in _STAGES.items() if stage > 2)
"""Verdicts of kernels that compiled and whose calls returned."""


@dataclass(frozen=True)
class Attempt:
    """One answer, and the verdict if its kernel was judged."""

    step: int
    answer: ModelAnswer
    judgement: Judgement | None = None

    @property
    def report(self) -> RunRecord | None:
        return self.judgement.report if self.judgement is not None else None

    @property
    def passed(self) -> bool:
        """Whether the kernel is right."""
        return self.report is not None and self.report.verdict is Verdict.PASS

    @property
    def faster(self) -> bool:
        """Whether the kernel is right, and the outcome of its run is "faster"."""
        return self.passed and self.report is not None and self.report.outcome == "faster"

    @property
    def speedup(self) -> float | None:
        """Median speedup by the clock of the headline; None if the kernel was not timed."""
        return self.report.median if self.report is not None else None

    @property
    def kernel(self) -> Kernel:
        """The kernel with all its files."""
        return self.answer.kernel


def counts(outcome: str, report: RunRecord | None) -> bool:
    """Whether an attempt counts for its model. It does not if the harness failed or the budget ended the answer."""
    return outcome != "budget" and (report is None or report.verdict is not Verdict.HARNESS_ERROR)


@dataclass
class KernelState:
    """One kernel, or an answer that has none."""

    number: int
    text: str
    """All text that the model wrote for it."""
    kernel: Kernel
    reason: str
    """The reason why there is no kernel; empty when there is one."""
    spent: Spent
    report: RunRecord | None = None
    printed: str = ""
    judged_at: float = 0.0
    """Time of its verdict, in seconds since the trace began."""


Judged = Attempt | KernelState
"""A kernel, and its report if it was judged."""
Tried = TypeVar("Tried", bound=Judged)


def score(report: RunRecord | None) -> tuple[int, float]:
    """Returns (stage, quality within the stage); larger is better. (0, 0) if there is no verdict on the kernel."""
    if report is None or report.verdict is Verdict.HARNESS_ERROR:
        return (0, 0.0)
    stage = _STAGES.get(report.verdict, 2)
    if report.verdict is Verdict.PASS:
        return (stage, report.interval.low if report.interval is not None else 0.0)
    share = report.failure.wrong_share if report.failure is not None else None
    return (stage, -(share if share is not None else 1.0))


def ranked_kernels(kernels: Sequence[Tried]) -> list[Ranked[Tried]]:
    """Returns the correct kernels that were timed, fastest first."""
    return ranked(kernels, _measurement)


def _measurement(kernel: Judged) -> Measurement | None:
    report = kernel.report
    if report is None or report.interval is None or not report.passed:
        return None
    return Measurement(code_hash(kernel.kernel), report.interval, report.clock)


def best_of(kernels: Sequence[Tried]) -> Tried | None:
    """Returns the best kernel with a report; of equal ones the earliest. None if there is none."""
    if right := ranked_kernels(kernels):
        return right[0].item
    judged = [kernel for kernel in kernels if kernel.report is not None]
    return max(judged, key=lambda kernel: score(kernel.report), default=None)


def gains(new: Judged, earlier: Sequence[Judged]) -> bool:
    """Whether a kernel is better than the best so far by more than noise. Code that was measured before is no gain."""
    best = best_of(earlier)
    if best is None:
        return score(new.report) > (0, 0.0)
    before, after = ranked_kernels(earlier), ranked_kernels([*earlier, new])
    if not before or not after:
        return score(new.report) > score(best.report)
    return after[0].items == (new,) and after[0].speedup.low > before[0].speedup.low * GAIN


def pass_at(k: int, attempts: int, passed: int) -> float:
    """Estimates pass@k without bias: the probability that at least one of k attempts passes.

    1 - C(attempts - passed, k) / C(attempts, k), for 1 <= k <= attempts. `passed` of the `attempts` have passed.
    """
    if not 1 <= k <= attempts:
        raise ValueError(f"pass@{k} needs at least {k} attempts, there are {attempts}")
    return 1.0 - math.comb(attempts - passed, k) / math.comb(attempts, k)
