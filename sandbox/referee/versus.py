"""A run between two contenders: both are checked, then one kernel is timed against the other.

The rival's world takes the place of the reference worlds. It is as untrusted as the contender's: each has its own arenas and
withheld inputs, and is stopped while the other is timed.
"""

import time
from collections.abc import Callable
from typing import Any

import msgspec

from sandbox.machine.time_source import TimeSource
from sandbox.protocol.events import Failure, PhaseEnded, PhaseStarted, Result, RivalResult, Run
from sandbox.protocol.frames import Kind
from sandbox.protocol.result import failure_words
from sandbox.protocol.verdict import Verdict
from sandbox.referee.correctness import CorrectnessCheck
from sandbox.referee.evaluation import Evaluation
from sandbox.timing.roofline import Peaks
from sandbox.timing.turns import Observations, TimedSide
from sandbox.worlds.exchange import RIVAL, AwaitAll, Exchange, Failed, PreparedSetting
from sandbox.worlds.failures import Deadline, WorldFailed
from sandbox.worlds.rank_wire import Received
from sandbox.worlds.world import World


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
        timer: TimeSource = time,
    ) -> None:
        """worlds: the contender's and the rival's, both new."""
        assert run.versus is not None
        self.run = run
        self.worlds = worlds
        self.awaited = worlds[0]

        def noting(world: World, kind: Kind, limit: float, may_be_late: bool = False) -> list[Received]:
            self.awaited = world
            return await_all(world, kind, limit, may_be_late)

        def of_rival(event: Any) -> None:
            if isinstance(event, PhaseStarted | PhaseEnded):  # other events would count as the contender's
                emit(event)

        rival_kernel = {"source": run.versus.source, "files": run.versus.files}
        theirs = msgspec.structs.replace(run, kernel_name=run.versus.kernel_name, **rival_kernel)
        self.sides = (
            CorrectnessCheck(run, Exchange(run.run_id, prepared, worlds[0], noting, emit, timer=timer)),
            CorrectnessCheck(theirs, Exchange(run.run_id, prepared, worlds[1], noting, of_rival, RIVAL, timer)),
        )
        rival = TimedSide(self.sides[1].exchange, [worlds[1]], Observations())
        self.evaluation = Evaluation(self.sides[0], peaks, rival if run.rounds != 0 else None)

    def judge(self) -> Result:
        """Runs the whole evaluation. No behaviour of a kernel raises an exception."""
        found = []
        for side in self.sides:
            found.append(side.judge())
            side.contender.processes.pause()  # its processes must not slow the other one's check
        if self.run.rounds != 0 and all(failure is None for _, failure in found):
            self.sides[1].exchange.phase = "time"
            try:
                self.evaluation.measure()
            except (Failed, WorldFailed, Deadline) as error:
                blamed = error.side if isinstance(error, Failed) else self.worlds.index(self.awaited)
                found[blamed] = self.sides[blamed].explain(error)
        return self.result(*found)

    def result(self, mine: tuple[Verdict, Failure | None], theirs: tuple[Verdict, Failure | None]) -> Result:
        """The contender's result with the rival's in it. It has a speedup only if both passed."""
        result = self.evaluation.result(*mine)
        if theirs[0] is not Verdict.PASS:
            result = msgspec.structs.replace(
                result,
                speedup=None,
                baseline_us=None,
                contender_us=None,
                roofline=None,
                outcome="",
                clock="",
                told="",
                advice="",
            )
        digest = self.sides[1].run.kernel.sha256
        verdict, failure = theirs
        words = failure_words(failure) if failure else ""
        rival = RivalResult(verdict=verdict, detail=words, failure=failure, sha256=digest)
        return msgspec.structs.replace(result, rival=rival)
