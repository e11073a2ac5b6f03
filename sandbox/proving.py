"""Is a kernel right? It is loaded and checked on fresh inputs; whatever it does wrong has a name here."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator

import msgspec

from sandbox import processes
from sandbox.deadlines import COMPILE
from sandbox.events import Checked, Failure, PhaseEnded, PhaseStarted, Run
from sandbox.exchange import Exchange, Failed
from sandbox.frames import Kind
from sandbox.turns import LATE_SECONDS
from sandbox.verdict import ADVICE, Verdict
from sandbox.wording import meaning
from sandbox.world import Deadline, WorldFailed

CHECKED_SLOTS = 3


class Proving:
    """Loads one revision on a stage and checks it."""

    def __init__(self, run: Run, exchange: Exchange) -> None:
        """exchange: between the stage and the contender's world, which is fresh."""
        self.run = run
        self.exchange = exchange
        self.contender = exchange.contender
        self.limits = exchange.stage.limits
        self.emit = exchange.emit
        self.started = time.monotonic()
        self.seconds: dict[str, float] = {}
        self.compile_started = 0.0
        self.timed_out = False
        self.contender.on_compiling = self.compiling

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
        limit = self.limits.load
        with self.phase("load", limit):
            self.exchange.hand_over_arenas()
            self.contender.tell(Kind.LOAD, {"name": self.run.kernel_name, "source": self.run.source})
            self.exchange.await_all(self.contender, Kind.LOADED, limit)

    def check(self) -> None:
        """First calls on fresh inputs, compared with the oracle; anything written afterwards is found."""
        limit = self.limits.first_call
        slots = list(range(min(CHECKED_SLOTS, self.exchange.stage.layout["slots"])))
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
            self.exchange.await_all(self.contender, Kind.RECOPIED, 2.0)
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
