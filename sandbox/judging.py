"""One run: from a kernel's text to a verdict. First it is proven right, then it is timed."""

import contextlib
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from sandbox import interval
from sandbox.events import Errors, Failure, Microseconds, Result, Roofline, Seconds, Speedup
from sandbox.exchange import Exchange, Failed
from sandbox.labels import NO_DEVICE_TIME
from sandbox.proving import Proving
from sandbox.roofline import Peaks, bound_us
from sandbox.rounds import Rounds
from sandbox.turns import Turns
from sandbox.verdict import Verdict
from sandbox.wording import detail
from sandbox.world import Deadline, WorldFailed


class Judging:
    """Judges a revision: against the baseline, or against a rival in its place."""

    def __init__(self, proof: Proving, peaks: Peaks, rival: Exchange | None = None) -> None:
        """rival: the arenas of the kernel that is timed instead of the baseline."""
        self.proof = proof
        self.peaks = peaks
        self.rounds = Rounds(proof.run, Turns(proof.run.setting, proof.exchange, rival), peaks)
        self.turn: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
        """Entered before anything is timed: nobody else may be timing on these devices."""

    def judge(self) -> Result:
        """The whole run. Never raises for anything a kernel can do."""
        verdict, failure = self.proof.prove()
        if failure is None and self.proof.run.rounds != 0:
            try:
                self.measure()
            except (Failed, WorldFailed, Deadline) as error:
                verdict, failure = self.proof.meaning_of(error)
        return self.result(verdict, failure)

    def measure(self) -> None:
        """The phase of the rounds.

        Raises:
            Failed, WorldFailed, Deadline: what ended it early.
        """
        limit = self.proof.limits.time + self.proof.run.budget_s
        with self.turn(), self.proof.phase("time", limit):
            self.rounds.measure()

    def result(self, verdict: Verdict, failure: Failure | None) -> Result:
        """Everything found, in one struct. Times and speedups only of a kernel that passed."""
        proof = self.proof
        outputs = [output for rank in proof.exchange.findings.values() for output in rank.values()]
        worst = max(outputs, key=lambda output: (not output.ok, output.rms), default=None)
        passed = verdict is Verdict.PASS
        call, device = self.rounds.call, self.rounds.device
        speed = call.speed if passed else None
        (base_call, mine_call), (base_device, mine_device) = call.medians(), device.medians()
        roofline = None
        if speed and mine_call and self.peaks.known:
            bound, limiter = bound_us(proof.run.setting, self.peaks)
            roofline = Roofline(
                bound_us=bound, percent=100 * bound / (mine_device or mine_call), limiter=limiter
            )
        return Result(
            verdict=verdict,
            detail=detail(verdict, failure),
            failure=failure,
            paper_rule=proof.paper_rule(),
            error=Errors(worst.rms, worst.max, worst.baseline_rms, worst.baseline_max) if worst else None,
            speedup=Speedup(call=speed, device=device.speed) if speed else None,
            baseline_us=Microseconds(call=base_call, device=base_device) if speed else None,
            contender_us=Microseconds(call=mine_call, device=mine_device) if speed else None,
            roofline=roofline,
            seconds=Seconds(
                **{name: proof.seconds.get(name, 0.0) for name in ("load", "compile", "check", "time")},
                total=time.monotonic() - proof.started,
            ),
            jail="none",
            sealed=proof.exchange.sealed,
            outcome=interval.outcome(speed) if speed else "",
            rounds=len(call.batches),
            samples=self.rounds.samples(),
            beside=proof.run.beside,
            labels=[NO_DEVICE_TIME] if self.rounds.behind_gate.cannot_queue else [],
        )
