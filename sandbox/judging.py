"""One run: from a kernel's text to a verdict. The order of things here is the judge's protocol."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from sandbox import interval, processes
from sandbox.deadlines import COMPILE
from sandbox.events import (
    Checked,
    Errors,
    Failure,
    Microseconds,
    PhaseEnded,
    PhaseStarted,
    Result,
    Roofline,
    Run,
    Seconds,
    Speedup,
)
from sandbox.exchange import AwaitAll, Exchange, Failed, Stage
from sandbox.frames import Kind
from sandbox.labels import NO_DEVICE_TIME
from sandbox.roofline import Peaks, bound_us
from sandbox.rounds import Rounds
from sandbox.turns import LATE_SECONDS, Turns
from sandbox.verdict import ADVICE, Verdict
from sandbox.wording import detail, meaning
from sandbox.world import Deadline, World, WorldFailed

CHECKED_SLOTS = 3


class Judging:
    """Judges one revision on a stage."""

    def __init__(
        self,
        run: Run,
        stage: Stage,
        contender: World,
        await_all: AwaitAll,
        emit: Callable[[Any], None],
        peaks: Peaks,
        side: int = 0,
    ) -> None:
        """side: 1 for a rival, which has arenas of its own."""
        self.run = run
        self.stage = stage
        self.contender = contender
        self.await_all = await_all
        self.emit = emit
        self.peaks = peaks
        self.exchange = Exchange(run.run_id, stage, contender, await_all, emit, side)
        self.rounds = Rounds(run, Turns(run.setting, self.exchange), peaks)
        self.started = time.monotonic()
        self.seconds: dict[str, float] = {}
        self.compile_started = 0.0
        self.timed_out = False
        self.turn: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
        """Entered before anything is timed: nobody else may be timing on these devices."""
        contender.on_compiling = self.compiling

    def judge(self) -> Result:
        """The whole run. Never raises for anything a kernel can do."""
        verdict, failure = self.prove()
        if failure is None and self.run.rounds != 0:
            try:
                with self.turn(), self.phase("time", self.stage.limits.time + self.run.budget_s):
                    self.rounds.measure()
            except (Failed, WorldFailed, Deadline) as error:
                verdict, failure = self.meaning_of(error)
        return self.result(verdict, failure)

    def prove(self) -> tuple[Verdict, Failure | None]:
        """Loads the kernel and checks it: is it right?"""
        verdict, failure = Verdict.PASS, None
        try:
            self.load()
            self.check()
        except (Failed, WorldFailed, Deadline) as error:
            verdict, failure = self.meaning_of(error)
        self.emit(self.checked(verdict, failure))
        return verdict, failure

    def meaning_of(self, error: Failed | WorldFailed | Deadline) -> tuple[Verdict, Failure]:
        """What ended the run early, as a verdict."""
        if isinstance(error, Failed):
            return error.verdict, error.failure
        if isinstance(error, WorldFailed):
            return self.explain(error)
        return Verdict.TIMEOUT, self.explain_deadline(error)

    @contextlib.contextmanager
    def phase(self, name: str, limit: float) -> Iterator[None]:
        """Shows a phase; its time is kept even when it fails."""
        self.exchange.phase = name
        started = time.monotonic()
        self.emit(PhaseStarted(run_id=self.run.run_id, phase=name, limit_s=limit))
        try:
            yield
            self.emit(PhaseEnded(run_id=self.run.run_id, phase=name, seconds=time.monotonic() - started))
        finally:
            self.seconds[name] = time.monotonic() - started

    def compiling(self, active: bool) -> None:
        """The kit compiles, inside load or the first call: shown as a phase of its own, and with its own deadline."""
        now = time.monotonic()
        if active:
            self.compile_started = now
            self.emit(PhaseStarted(run_id=self.run.run_id, phase="compile", limit_s=COMPILE))
        else:
            self.seconds["compile"] = self.seconds.get("compile", 0.0) + now - self.compile_started
            self.emit(PhaseEnded(run_id=self.run.run_id, phase="compile", seconds=self.seconds["compile"]))

    def checked(self, verdict: Verdict, failure: Failure | None) -> Checked:
        """The correctness verdict as an event."""
        return Checked(
            run_id=self.run.run_id,
            verdict=verdict,
            seconds=time.monotonic() - self.started,
            failure=failure,
            paper_rule=self.paper_rule() or "",
        )

    def paper_rule(self) -> str | None:
        """What upstream's rule says, once something was compared."""
        paper = self.exchange.paper
        return None if paper is None else "match" if paper else "mismatch"

    def load(self) -> None:
        """Sends the source; every rank imports it."""
        limit = self.stage.limits.load
        with self.phase("load", limit):
            self.exchange.hand_over_arenas()
            self.contender.tell(Kind.LOAD, {"name": self.run.kernel_name, "source": self.run.source})
            self.await_all(self.contender, Kind.LOADED, limit)

    def check(self) -> None:
        """First calls on fresh inputs, compared with the oracle; anything written afterwards is found."""
        limit = self.stage.limits.first_call
        slots = list(range(min(CHECKED_SLOTS, self.stage.layout["slots"])))
        with self.phase("check", limit):
            self.exchange.draw(len(slots), expect_poison=False)
            self.exchange.reveal()  # nothing is timed here, and the private copies must be of complete inputs
            self.exchange.arm(self.contender, checking=True)
            self.contender.go()
            self.exchange.await_done(self.contender, limit)
            returned = time.monotonic()
            verdict, failure = self.exchange.compare(slots, ran=False)
            if failure is None:
                time.sleep(max(0.0, LATE_SECONDS - (time.monotonic() - returned)))
                self.exchange.require_untouched()
                return
            if verdict in (Verdict.WRONG_RESULT, Verdict.NONFINITE) and self.arrives_late(slots):
                verdict = Verdict.LATE_OUTPUT
                message = "the outputs were still being written when solution() returned"
                failure = msgspec.structs.replace(failure, message=message, advice=ADVICE[verdict])
            raise Failed(verdict, failure)

    def arrives_late(self, slots: list[int]) -> bool:
        """Whether the results of the checked calls are right now that some time has passed."""
        time.sleep(LATE_SECONDS)
        try:
            self.contender.tell(Kind.RECOPY)
            self.await_all(self.contender, Kind.RECOPIED, 2.0)
            return self.exchange.compare(slots, ran=False, note=False)[0] is Verdict.PASS
        except (WorldFailed, Deadline):
            return False

    def explain(self, failed: WorldFailed) -> tuple[Verdict, Failure]:
        """What a rank's end means."""
        verdict, message, text = meaning(failed)
        failure = self.exchange.failure(
            message, verdict, rank=failed.rank, line=failed.line or None, text=text
        )
        if verdict is Verdict.COMPILE_ERROR:
            failure = msgspec.structs.replace(failure, phase="compile")
        return verdict, failure

    def explain_deadline(self, late: Deadline) -> Failure:
        """Which ranks did not finish; they are asked to print where they are."""
        self.timed_out = True
        for pid in processes.tree(self.contender.process.pid):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)
                if processes.handles(pid, signal.SIGUSR1):
                    os.kill(pid, signal.SIGUSR1)
        who = ", ".join(map(str, late.ranks))
        ranks = "ranks" if len(late.ranks) > 1 else "rank"
        phase = self.exchange.phase
        message = f"{ranks} {who} did not finish the {phase} phase in time"
        return self.exchange.failure(message, Verdict.TIMEOUT, rank=late.ranks[0] if late.ranks else None)

    def result(self, verdict: Verdict, failure: Failure | None) -> Result:
        """Everything found, in one struct. Times and speedups only of a kernel that passed."""
        outputs = [output for rank in self.exchange.findings.values() for output in rank.values()]
        worst = max(outputs, key=lambda output: (not output.ok, output.rms), default=None)
        passed = verdict is Verdict.PASS
        call, device = self.rounds.call, self.rounds.device
        speed = call.speed if passed else None
        (base_call, mine_call), (base_device, mine_device) = call.medians(), device.medians()
        roofline = None
        if speed and mine_call and self.peaks.known:
            bound, limiter = bound_us(self.run.setting, self.peaks)
            roofline = Roofline(
                bound_us=bound, percent=100 * bound / (mine_device or mine_call), limiter=limiter
            )
        return Result(
            verdict=verdict,
            detail=detail(verdict, failure),
            failure=failure,
            paper_rule=self.paper_rule(),
            error=Errors(worst.rms, worst.max, worst.baseline_rms, worst.baseline_max) if worst else None,
            speedup=Speedup(call=speed, device=device.speed) if speed else None,
            baseline_us=Microseconds(call=base_call, device=base_device) if speed else None,
            contender_us=Microseconds(call=mine_call, device=mine_device) if speed else None,
            roofline=roofline,
            seconds=Seconds(
                **{name: self.seconds.get(name, 0.0) for name in ("load", "compile", "check", "time")},
                total=time.monotonic() - self.started,
            ),
            jail="none",
            sealed=self.exchange.sealed,
            outcome=interval.outcome(speed) if speed else "",
            rounds=len(call.batches),
            samples=self.rounds.samples(),
            beside=self.run.beside,
            labels=[NO_DEVICE_TIME] if self.rounds.behind_gate.cannot_queue else [],
        )
