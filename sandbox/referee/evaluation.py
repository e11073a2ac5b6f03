"""The evaluation of one kernel: the correctness check, then timing, then the result.

In a run between two contenders, both are checked, then one kernel is timed against the other. The rival's world takes the place
of the reference worlds. It is as untrusted as the contender's: each has its own arenas and withheld inputs, and is stopped while
the other is timed.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from sandbox.machine.devices import kind_of
from sandbox.protocol import events
from sandbox.protocol.events import Failure, PhaseEnded, PhaseStarted, Result, RivalResult, Run
from sandbox.protocol.frames import Kind
from sandbox.protocol.result import Energy, Samples, failure_words
from sandbox.protocol.verdict import Verdict
from sandbox.referee.correctness import CorrectnessCheck
from sandbox.referee.labels import NO_DEVICE_TIME, REUSES, SHORT, SHORT_US
from sandbox.referee.lease import Urgency
from sandbox.timing import energy
from sandbox.timing.clocks import Clock
from sandbox.timing.conclusion import Conclusion, conclude
from sandbox.timing.roofline import Peaks, bound_us
from sandbox.timing.rounds import Rounds
from sandbox.timing.stopping_rule import is_sharp
from sandbox.timing.turns import Observations, TimedSide, Turns
from sandbox.worlds.deadlines import TimeSource
from sandbox.worlds.exchange import RIVAL, AwaitAll, Exchange, Failed, PreparedSetting
from sandbox.worlds.failures import Deadline, HarnessFailed, OutputsLost, WorldFailed
from sandbox.worlds.rank_wire import Received
from sandbox.worlds.world import World

SLICE_S = 2.0
"""After so many seconds of measuring on, the result so far is checked as a whole and told."""


class Evaluation:
    """Evaluates a kernel against the baseline, or against a rival."""

    def __init__(
        self, correctness: CorrectnessCheck, peaks: Peaks, open_baseline: Callable[[], TimedSide] | None = None
    ) -> None:
        """open_baseline: returns the side of the reference worlds; called once the kernels have passed the check.

        None: correctness only.
        """
        self.correctness = correctness
        self.peaks = peaks
        self.open_baseline = open_baseline
        self.rounds: Rounds | None = None
        self.energy: Energy | None = None
        self.passed_check = False
        self.leased: Callable[[int], AbstractContextManager[Any]] = contextlib.nullcontext
        """The context of timing, by its urgency. It keeps other arenas from timing on these devices."""
        self.give_way: Callable[[Callable[[], None]], float] = lambda stop: 0.0
        """Lets more urgent runs go first, between rounds; takes a function that stops all worlds, returns seconds."""

    def judge(self) -> events.Result:
        """Runs the whole evaluation. No behaviour of a kernel raises an exception.

        Raises as `open_baseline`: the reference worlds cannot be prepared.
        """
        verdict, failure = self.correctness.judge()
        self.passed_check = verdict is Verdict.PASS
        if failure is None and self.open_baseline is not None:
            self.correctness.contender.processes.pause()  # the references make their first calls
            baseline_side = self.open_baseline()
            try:
                self.measure(baseline_side)
            except (Failed, WorldFailed, Deadline) as error:
                verdict, failure = self.correctness.explain(error)
        return self.result(verdict, failure)

    def untimed(self) -> events.Result | None:
        """The result of a run that is ended while it is timed: it passed, without times. None if it was not checked yet."""
        if not self.passed_check:
            return None
        self.rounds = None
        return self.result(Verdict.PASS, None)

    def measure(self, baseline_side: TimedSide, references: TimedSide | None = None) -> None:
        """Times the kernel on `Turns` of these sides, and starts again if outputs were lost, at most once a kernel.

        Raises:
            Failed, WorldFailed, Deadline: timing ended early.
        """
        run, exchange = self.correctness.run, self.correctness.exchange
        while True:
            contender_side = TimedSide(exchange, [exchange.contender], Observations())
            self.rounds = Rounds(run, Turns(run.setting, baseline_side, contender_side, references), self.peaks)
            try:
                self._measure(self.rounds)
                return
            except OutputsLost:
                continue

    def _measure(self, rounds: Rounds) -> None:
        limit = self.correctness.limits.time + rounds.stopping_rule.longest_s
        limit += 2 * energy.ROW_S * self.correctness.run.energy
        rounds.give_way = self.give_way
        with self.leased(self.correctness.run.urgency), self.correctness.phase("time", limit):
            rounds.measure()
            baseline_us, contender_us = rounds.call.medians()
            if self.correctness.run.energy and baseline_us and contender_us:
                self.energy = energy.measure(rounds.turns, (baseline_us, contender_us))

    def measure_on(self, seconds: float, asked: Callable[[], bool]) -> Iterator[events.Result]:
        """Goes on measuring a kernel that passed, and yields a sharper result every SLICE_S.

        It ends after these seconds, when the intervals are sharp, or when asked() says that something newer is to be done.
        A kernel that fails now has failed: that is the last result.

        Raises:
            Stopped: the run was cancelled. What was yielded before is complete.
        """
        rounds, now = self.rounds, self.correctness.timer.monotonic
        assert rounds is not None
        self.correctness.contender.processes.pause()  # another arena may be timing now
        with self.leased(Urgency.BACKGROUND), self.correctness.phase("time", self.correctness.limits.time + seconds):
            until = now() + seconds
            while now() < until and not asked() and rounds.unconfirmed is None and not is_sharp(*rounds.estimate()):
                try:
                    rounds.measure_on(SLICE_S, asked)
                except OutputsLost:
                    return
                except (Failed, WorldFailed, Deadline) as error:
                    yield self.result(*self.correctness.explain(error))
                    return
                yield self.result(Verdict.PASS, None)

    def may_measure_on(self, result: events.Result) -> bool:
        """Whether more measuring can make this result sharper."""
        run, rounds = self.correctness.run, self.rounds
        timed = result.verdict is Verdict.PASS and run.rounds is None and run.versus is None and rounds is not None
        return timed and rounds is not None and bool(rounds.call.raw) and rounds.unconfirmed is None

    def conclusion(self, call: events.Interval | None, device: events.Interval | None) -> Conclusion:
        """The conclusion from both clocks. On CPU ranks its advice considers the number of cores."""
        setting = self.correctness.run.setting
        cores = 0 if kind_of(setting.device).has_gate else len(os.sched_getaffinity(0))
        unconfirmed, why = (self.rounds.unconfirmed, self.rounds.call.why) if self.rounds else (None, "")
        return conclude(call, device, setting.world, cores, unconfirmed, why)

    def result(self, verdict: Verdict, failure: events.Failure | None) -> events.Result:
        """The result. Times and speedups are set only if the kernel passed."""
        correctness = self.correctness
        outputs = [output for rank in correctness.exchange.findings.values() for output in rank.values()]
        worst = max(outputs, key=lambda output: (not output.ok, output.rms), default=None)
        passed = verdict is Verdict.PASS
        call, device = (self.rounds.call, self.rounds.device) if self.rounds else (Clock("call"), Clock("device"))
        timed = passed and bool(call.raw)
        speed = events.Speedup(call=call.speed, device=device.speed) if timed else None
        (baseline_call, contender_call), (baseline_device, contender_device) = call.medians(), device.medians()
        conclusion = self.conclusion(call.speed, device.speed) if timed else conclude(None, None)
        roofline = None
        unconfirmed = self.rounds is not None and self.rounds.unconfirmed is not None
        if timed and contender_call and self.peaks.known and not unconfirmed:
            bound, limiter = bound_us(correctness.run.setting, self.peaks)
            roofline = events.Roofline(
                bound_us=bound, percent=100 * bound / (contender_device or contender_call), limiter=limiter
            )
        return events.Result(
            verdict=verdict,
            detail=failure_words(failure) if failure else "",
            failure=failure,
            paper_rule=correctness.paper_rule(),
            error=events.Errors(worst.rms, worst.max, worst.baseline_rms, worst.baseline_max) if worst else None,
            speedup=speed,
            baseline_us=events.Microseconds(call=baseline_call, device=baseline_device) if timed else None,
            contender_us=events.Microseconds(call=contender_call, device=contender_device) if timed else None,
            roofline=roofline,
            seconds=events.Seconds(
                **{name: correctness.seconds.get(name, 0.0) for name in ("load", "compile", "check", "time")},
                total=correctness.timer.monotonic() - correctness.started,
            ),
            jail="none",
            sealed=correctness.exchange.sealed,
            **conclusion._asdict(),
            rounds=self.rounds.turns.rounds if self.rounds else 0,
            samples=self.rounds.samples() if self.rounds else Samples(),
            beside=correctness.run.beside,
            energy=self.energy if passed and self.energy else msgspec.UNSET,
            labels=self.labels,
        )

    def learned_offsets(self) -> dict[str, list[float]]:
        """What the reference worlds of this run add to this machine's history of world offsets."""
        if self.rounds is None:
            return {}
        return self.rounds.call.learned_offsets() | self.rounds.device.learned_offsets()

    @property
    def labels(self) -> list[str]:
        """The labels found by timing."""
        found = [REUSES] * self.correctness.exchange.reuses
        if self.rounds is not None:
            found = [NO_DEVICE_TIME] * self.rounds.behind_gate.cannot_queue + found
            mine = self.rounds.call.medians()[1]
            if mine is not None and mine < SHORT_US:
                found.append(SHORT.format(self.rounds.call.overhead_us))
        return found


class Versus:
    """Judges two kernels against each other. Side 0 is the contender, side 1 the rival."""

    def __init__(
        self,
        run: Run,
        prepared: PreparedSetting,
        worlds: tuple[World, World],
        await_all: AwaitAll,
        emit: Callable[[Any], None],
        peaks: Peaks,
        timer: TimeSource,
    ) -> None:
        """worlds: the contender's and the rival's, both new."""
        assert run.versus is not None
        self.run = run
        self.worlds = worlds
        self.awaited = worlds[0]

        def noting(world: World, kind: Kind, limit: float, may_be_late: bool = False) -> list[Received]:
            self.awaited = world if world in worlds else self.awaited
            return await_all(world, kind, limit, may_be_late)

        def of_rival(event: Any) -> None:
            if isinstance(event, PhaseStarted | PhaseEnded):  # other events would count as the contender's
                emit(event)

        theirs = msgspec.structs.replace(run, **msgspec.structs.asdict(run.versus))
        self.sides = (
            CorrectnessCheck(run, Exchange(prepared, worlds[0], noting, emit, timer)),
            CorrectnessCheck(theirs, Exchange(prepared, worlds[1], noting, of_rival, timer, RIVAL)),
        )
        self.evaluation = Evaluation(self.sides[0], peaks)

    def judge(self) -> Result:
        """Runs the whole evaluation. Raises as `Evaluation.judge`, and HarnessFailed if one of two kernels lacks GPU memory."""
        found = []
        for side in self.sides:
            found.append(side.judge())
            side.contender.processes.pause()  # its processes must not slow the other one's check
        if self.evaluation.open_baseline is not None and all(failure is None for _, failure in found):
            references = self.evaluation.open_baseline()
            self.sides[1].exchange.phase = "time"
            rival_side = TimedSide(self.sides[1].exchange, [self.worlds[1]], Observations())
            try:
                self.evaluation.measure(rival_side, references)
            except (Failed, WorldFailed, Deadline) as error:
                blamed = error.side if isinstance(error, Failed) else self.worlds.index(self.awaited)
                found[blamed] = self.sides[blamed].explain(error)
        if kind_of(self.run.setting.device).on_gpus and any(verdict is Verdict.OUT_OF_MEMORY for verdict, _ in found):
            raise HarnessFailed("GPU memory has no room for both kernels", "Run each alone, or choose smaller sizes.")
        return self.result(*found)

    def result(self, mine: tuple[Verdict, Failure | None], theirs: tuple[Verdict, Failure | None]) -> Result:
        """The contender's result with the rival's in it. It has a speedup only if both passed."""
        result = self.evaluation.result(*mine)
        if theirs[0] is not Verdict.PASS:
            figures = dict.fromkeys(("speedup", "baseline_us", "contender_us", "roofline"))
            words_on_speed = dict.fromkeys(("outcome", "clock", "told", "advice"), "")
            result = msgspec.structs.replace(result, **figures, **words_on_speed)
        digest = self.sides[1].run.kernel.sha256
        verdict, failure = theirs
        words = failure_words(failure) if failure else ""
        rival = RivalResult(verdict=verdict, detail=words, failure=failure, sha256=digest)
        return msgspec.structs.replace(result, rival=rival)
