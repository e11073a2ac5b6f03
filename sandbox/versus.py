"""A run between two contenders: both must be right, and the rounds time one kernel against the other.

The rival's world takes the baseline world's place in the rounds, and is trusted no more than the contender's: each has arenas
and withheld inputs of its own, each is frozen while the other is timed. The baseline world draws the inputs and compares.
"""

import math
import signal
import time
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import msgspec

from sandbox import processes
from sandbox.clocks import FOREIGN_US, Looks, Wait
from sandbox.events import Failure, PhaseEnded, PhaseStarted, Result, RivalResult, Run
from sandbox.exchange import AwaitAll, Exchange, Failed, Reply, Stage
from sandbox.judging import Judging
from sandbox.roofline import Peaks, bound_us
from sandbox.rounds import DISTURBED_SHARE, LATE_SECONDS, Rounds
from sandbox.verdict import Verdict
from sandbox.wording import detail
from sandbox.world import Deadline, World, WorldFailed


class Versus:
    """Judges two kernels against each other. Side 0 is the contender, side 1 the rival."""

    def __init__(
        self,
        run: Run,
        stage: Stage,
        worlds: tuple[World, World],
        await_all: AwaitAll,
        emit: Callable[[Any], None],
        peaks: Peaks,
    ) -> None:
        """worlds: the contender's and the rival's, both fresh."""
        assert run.versus is not None
        self.run = run
        self.worlds = worlds
        self.awaited = worlds[0]

        def noting(world: World, kind: int, limit: float, may_be_late: bool = False) -> Reply:
            self.awaited = world
            return await_all(world, kind, limit, may_be_late)

        def of_rival(event: Any) -> None:
            if isinstance(event, PhaseStarted | PhaseEnded):  # its figures would pass for the contender's
                emit(event)

        theirs = msgspec.structs.replace(run, kernel_name=run.versus.kernel_name, source=run.versus.source)
        self.sides = (
            Judging(run, stage, worlds[0], noting, emit, peaks),
            Judging(theirs, stage, worlds[1], noting, of_rival, peaks, side=1),
        )
        self.sides[0].rounds = VersusRounds(run, self.sides[0].exchange, self.sides[1].exchange, peaks)

    def judge(self) -> Result:
        """The whole run. Never raises for anything a kernel can do."""
        found = [side.prove() for side in self.sides]
        if self.run.rounds != 0 and all(failure is None for _, failure in found):
            first, second = self.sides
            second.exchange.phase = "time"
            try:
                with first.turn(), first.phase("time", first.stage.limits.time + self.run.budget_s):
                    first.rounds.measure()
            except (Failed, WorldFailed, Deadline) as error:
                blamed = error.side if isinstance(error, Failed) else self.worlds.index(self.awaited)
                found[blamed] = self.sides[blamed].meaning_of(error)
        return self.result(*found)

    def result(self, mine: tuple[Verdict, Failure | None], theirs: tuple[Verdict, Failure | None]) -> Result:
        """The contender's result with the rival's in it; a speedup only when both passed."""
        result = self.sides[0].result(*mine)
        if theirs[0] is not Verdict.PASS:
            result = msgspec.structs.replace(
                result, speedup=None, baseline_us=None, contender_us=None, roofline=None, outcome=""
            )
        digest = sha256(self.sides[1].run.source.encode()).hexdigest()
        rival = RivalResult(verdict=theirs[0], detail=detail(*theirs), failure=theirs[1], sha256=digest)
        return msgspec.structs.replace(result, rival=rival)


class VersusRounds(Rounds):
    """The same rounds with the rival in the baseline's place."""

    def __init__(self, run: Run, exchange: Exchange, rival: Exchange, peaks: Peaks) -> None:
        super().__init__(run, exchange, peaks)
        self.exchanges = (exchange, rival)
        self.worlds = (exchange.contender, rival.contender)
        self.baseline = rival.contender
        self.quickest = [math.inf, math.inf]
        """Shortest time per call of any batch by side, in microseconds."""
        self.stolen_by = [0.0, 0.0]
        """CPU seconds that each side used while the other was timed."""
        self.timed = [0.0, 0.0]
        self.looks_by = (Looks(), Looks())
        """Work on the devices at the wrong moment, by whose it was."""
        self.left_over = False

    def measure(self) -> None:
        self.exchange.sides = [0, 1]  # until now each side was drawn inputs of its own
        super().measure()

    def round(self, count: int, first: bool = False) -> tuple[float, float]:
        theirs, mine = super().round(count, first)
        for side, seconds in enumerate((mine, theirs)):
            self.quickest[side] = min(self.quickest[side], seconds / count * 1e6)
        return theirs, mine

    def run_baseline(self) -> float:
        return self.turn(1, self.baseline_wait)

    def run_contender(self) -> float:
        return self.turn(0, self.contender_wait)

    def turn(self, side: int, wait: Wait) -> float:
        """One side's batch, with the other frozen and its CPU use watched."""
        world = self.worlds[side]
        self.look_for_leftovers()
        self.let_only(side)
        self.exchange.arm(world)
        before = processes.cpu_seconds(self.frozen)
        seconds = self.watched(world, wait)
        self.stolen_by[1 - side] += processes.cpu_seconds(self.frozen) - before
        self.timed[side] += seconds
        return seconds

    def let_only(self, side: int) -> None:
        """Stops one side and continues the other."""
        self.frozen = processes.signal_tree(self.worlds[1 - side].process.pid, signal.SIGSTOP)
        processes.signal_tree(self.worlds[side].process.pid, signal.SIGCONT)

    def side_of(self, world: World) -> int:
        return self.worlds.index(world)

    def note_look(self, world: World, clock: str, foreign_us: float) -> None:
        if not world.trusted:
            side = self.side_of(world)
            culprit = 1 - side if self.left_over else side
            self.looks_by[culprit].note(f"{'its' if culprit == side else 'the other'}, {clock}", foreign_us)

    def look_for_leftovers(self) -> None:
        """Both sides are stopped: what still runs on the GPUs now is not of the side whose turn comes."""
        if self.run.setting.device != "cuda":
            return
        self.freeze(True)
        self.left_over = self.exchange.foreign_us() > FOREIGN_US

    def freeze(self, stop: bool) -> None:
        for world in self.worlds:
            processes.signal_tree(world.process.pid, signal.SIGSTOP if stop else signal.SIGCONT)

    def gated(self, world: World) -> float:
        if not world.trusted:
            self.look_for_leftovers()
            self.let_only(self.side_of(world))
        return super().gated(world)

    def compare_one(self, count: int) -> None:
        """The same iteration of both sides is compared."""
        self.freeze(True)
        picked = [self.random.randrange(count)]
        for exchange in self.exchanges:
            verdict, failure = exchange.compare(picked, ran=False)
            if failure is not None:
                raise Failed(verdict, failure, exchange.side)

    def look_back(self) -> None:
        self.freeze(False)
        time.sleep(LATE_SECONDS)
        self.exchange.require_untouched()
        floor, limiter = bound_us(self.run.setting, self.peaks.impossible())
        for side, exchange in enumerate(self.exchanges):
            stolen, others = self.stolen_by[side], self.timed[1 - side]
            if stolen > DISTURBED_SHARE * others and stolen > 0.05:
                verdict = Verdict.BASELINE_DISTURBED
                message = (
                    f"the kernel's processes used {stolen:.2f} s of CPU while the other kernel was timed"
                )
                raise Failed(verdict, exchange.failure(message, verdict), side)
            if fault := self.looks_by[side].fault:
                verdict = Verdict.BASELINE_DISTURBED
                raise Failed(verdict, exchange.failure(fault, verdict), side)
            if self.quickest[side] < floor:
                verdict = Verdict.IMPOSSIBLE_SPEED
                message = f"{self.quickest[side]:.3f} us a call, but {limiter} alone needs {floor:.3f} us"
                raise Failed(verdict, exchange.failure(message, verdict), side)
