"""One run: from a kernel's text to a verdict. The order of things here is the judge's protocol."""

import os
import random
import signal
import time
from collections.abc import Callable
from typing import Any

import msgspec

from sandbox import interval, processes
from sandbox.deadlines import COMPILE
from sandbox.deadlines import Limits as TimeLimits
from sandbox.events import (
    Checked,
    Errors,
    Failure,
    Interval,
    Microseconds,
    OutputError,
    PhaseEnded,
    PhaseStarted,
    RankChecked,
    Result,
    Roofline,
    Run,
    Seconds,
    Speedup,
    Timed,
)
from sandbox.frames import Kind
from sandbox.roofline import Peaks, bound_us
from sandbox.verdict import ADVICE, Verdict
from sandbox.wording import detail, meaning
from sandbox.world import Deadline, World, WorldFailed

CHECKED_SLOTS = 3
LATE_SECONDS = 0.05
MAX_ROUNDS = 101
CONTENDER_BATCH = 0.003
BASELINE_BATCH = 0.030
DISTURBED_SHARE = 0.2


class Stage:
    """The baseline world of a setting, with what it found out about the problem."""

    def __init__(self, world: World, limits: TimeLimits) -> None:
        self.world = world
        self.limits = limits
        self.layout: dict[str, int] = {}
        self.calls = 1
        self.call_seconds = 0.0
        self.used = False


class Failed(Exception):
    """The run ended before its time: why, in the words of a verdict."""

    def __init__(self, verdict: Verdict, failure: Failure) -> None:
        super().__init__(failure.message)
        self.verdict = verdict
        self.failure = failure


Await = Callable[[World, int, float], list[tuple[Any, list[int]]]]


class Judging:
    """Judges one revision on a stage. `await_all` waits for a frame from every rank of a world, serving everything else
    meanwhile; it raises WorldFailed or Deadline for the contender, and other exceptions for whatever else ends the run."""

    def __init__(self, run: Run, stage: Stage, contender: World, await_all: Await, emit: Callable[[Any], None], peaks: Peaks) -> None:
        self.run = run
        self.stage = stage
        self.baseline = stage.world
        self.contender = contender
        self.await_all = await_all
        self.emit = emit
        self.peaks = peaks
        self.started = time.monotonic()
        self.phase = "load"
        self.phase_started = self.started
        self.seconds: dict[str, float] = {}
        self.findings: dict[int, dict[str, OutputError]] = {}
        self.paper: bool | None = None
        self.times: tuple[list[float], list[float]] = ([], [])
        self.fastest = float("inf")
        """Shortest time per call of any batch, nothing subtracted."""
        self.idle_ticks = 0.0
        self.baseline_seconds = 0.0
        self.random = random.SystemRandom()
        self.speed: Interval | None = None
        self.tables: list[Any] = []
        self.frozen: list[int] = []
        self.compile_started = 0.0
        self.timed_out = False
        contender.on_compiling = self.compiling

    # --- phases --------------------------------------------------------------------------------------------

    def begin(self, phase: str, limit: float) -> None:
        """Opens a phase."""
        self.phase, self.phase_started = phase, time.monotonic()
        self.emit(PhaseStarted(run_id=self.run.run_id, phase=phase, limit_s=limit))

    def end(self) -> None:
        """Closes the phase."""
        self.seconds[self.phase] = time.monotonic() - self.phase_started
        self.emit(PhaseEnded(run_id=self.run.run_id, phase=self.phase, seconds=self.seconds[self.phase]))

    def compiling(self, active: bool) -> None:
        """The kit compiles, inside load or the first call: shown as a phase of its own, and with its own deadline."""
        now = time.monotonic()
        if active:
            self.compile_started = now
            self.emit(PhaseStarted(run_id=self.run.run_id, phase="compile", limit_s=COMPILE))
        else:
            self.seconds["compile"] = self.seconds.get("compile", 0.0) + now - self.compile_started
            self.emit(PhaseEnded(run_id=self.run.run_id, phase="compile", seconds=self.seconds["compile"]))

    def judge(self) -> Result:
        """The whole run. Never raises for anything a kernel can do."""
        verdict, failure = Verdict.PASS, None
        checked = False
        try:
            self.load()
            self.check()
            checked = True
            self.emit(self.checked(Verdict.PASS, None))
            if self.run.rounds != 0:
                self.time()
        except Failed as failed:
            verdict, failure = failed.verdict, failed.failure
        except WorldFailed as failed:
            verdict, failure = self.explain(failed)
        except Deadline as late:
            verdict, failure = Verdict.TIMEOUT, self.explain_deadline(late)
        if failure is not None and not checked:
            self.emit(self.checked(verdict, failure))
        return self.result(verdict, failure)

    def checked(self, verdict: Verdict, failure: Failure | None) -> Checked:
        """The correctness verdict as an event."""
        paper = "" if self.paper is None else "match" if self.paper else "mismatch"
        return Checked(
            run_id=self.run.run_id,
            verdict=verdict,
            seconds=time.monotonic() - self.started,
            failure=failure,
            paper_rule=paper,
        )

    def load(self) -> None:
        """Sends the source; every rank imports it."""
        limits = self.stage.limits
        self.begin("load", limits.load)
        self.hand_over_arenas()
        self.contender.tell(Kind.LOAD, {"name": self.run.kernel_name, "source": self.run.source})
        self.await_all(self.contender, Kind.LOADED, limits.load)
        self.end()

    def hand_over_arenas(self) -> None:
        """Fresh arenas for the contender, from each trusted rank to its twin."""
        layout = {**self.stage.layout, "own": not self.stage.used}
        self.stage.used = True
        self.baseline.tell(Kind.ARENAS, layout)
        for rank, (_, fds) in enumerate(self.await_all(self.baseline, Kind.REPLY, self.stage.limits.own)):
            self.contender.tell(Kind.ARENAS, layout, rank, tuple(fds))
            for fd in fds:
                os.close(fd)
        self.await_all(self.contender, Kind.MAPPED, self.stage.limits.load)

    def check(self) -> None:
        """First calls on fresh inputs, compared with the oracle; anything written afterwards is found."""
        limits = self.stage.limits
        count = min(CHECKED_SLOTS, self.stage.layout["slots"])
        self.begin("check", limits.first_call)
        self.draw(count, expect_poison=False)
        self.reveal()  # nothing is timed here, and the private copies must be of complete inputs
        self.arm(self.contender, checking=True)
        self.contender.go()
        self.await_all(self.contender, Kind.DONE, limits.first_call)
        copied = time.monotonic()
        verdict, failure = self.compare(list(range(count)), ran=False)
        if verdict is Verdict.PASS:
            time.sleep(max(0.0, LATE_SECONDS - (time.monotonic() - copied)))
            self.require_untouched()
        elif verdict in (Verdict.WRONG_RESULT, Verdict.NONFINITE) and self.arrives_late(count):
            verdict = Verdict.LATE_OUTPUT
            failure = msgspec.structs.replace(
                failure,
                message="the outputs were still being written when solution() returned",
                advice=ADVICE[Verdict.LATE_OUTPUT],
            )
        self.end()
        if failure is not None:
            raise Failed(verdict, failure)

    def arrives_late(self, count: int) -> bool:
        """Whether the results of the checked calls are right now that some time has passed."""
        time.sleep(LATE_SECONDS)
        try:
            self.contender.tell(Kind.RECOPY)
            self.await_all(self.contender, Kind.RECOPIED, 2.0)
            return self.compare(list(range(count)), ran=False, note=False)[0] is Verdict.PASS
        except (WorldFailed, Deadline):
            return False

    def require_untouched(self) -> None:
        """The output arena was poisoned when it was read: nobody may have written since."""
        self.baseline.tell(Kind.INTACT)
        for rank, (payload, _) in enumerate(self.await_all(self.baseline, Kind.REPLY, self.stage.limits.own)):
            if not payload["intact"]:
                raise self.late(rank)

    def late(self, rank: int) -> Failed:
        """Something still wrote to the outputs after they were due."""
        message = f"rank {rank} wrote to an output after its call had ended"
        failure = Failure(phase=self.phase, message=message, advice=ADVICE[Verdict.LATE_OUTPUT], rank=rank)
        return Failed(Verdict.LATE_OUTPUT, failure)

    # --- comparing -----------------------------------------------------------------------------------------

    def draw(self, count: int, expect_poison: bool) -> None:
        """Fresh secret inputs for the first `count` slots, and where each tensor lies (shapes may differ by rank)."""
        seeds = [int.from_bytes(os.urandom(8), "little") >> 1 for _ in range(count)]
        self.baseline.tell(Kind.DRAW, {"seeds": seeds, "intact": expect_poison})
        replies = self.await_all(self.baseline, Kind.REPLY, self.stage.limits.own)
        for rank, (payload, _) in enumerate(replies):
            if not payload["intact"]:
                raise self.late(rank)
        self.tables = [payload["tables"] for payload, _ in replies]

    def arm(self, world: World, checking: bool = False) -> None:
        """Every rank of a world assembles the arguments of the drawn iterations."""
        for rank, table in enumerate(self.tables):
            world.tell(Kind.ARM, {"slots": table, "checking": checking}, rank)
        self.await_all(world, Kind.ARMED, self.stage.limits.load)

    def reveal(self) -> None:
        """Completes the contender's inputs."""
        self.baseline.tell(Kind.REVEAL)
        self.await_all(self.baseline, Kind.REPLY, self.stage.limits.own)

    def compare(self, slots: list[int], ran: bool, note: bool = True) -> tuple[Verdict, Failure | None]:
        """Has the trusted ranks compare these slots; the first failing rank decides."""
        self.baseline.tell(Kind.JUDGE, {"slots": slots, "poison": True, "ran": ran})
        verdict, failure = Verdict.PASS, None
        for rank, (payload, _) in enumerate(self.await_all(self.baseline, Kind.REPLY, self.stage.limits.own)):
            ok = True
            for finding in payload["findings"]:
                outputs = msgspec.convert(finding["outputs"], list[OutputError])
                if note:
                    self.note(rank, outputs, finding["paper"])
                found = Verdict(finding["verdict"])
                if found is not Verdict.PASS:
                    ok = False
                    if failure is None:
                        verdict, failure = found, self.mismatch(rank, found, finding, outputs)
            if note and (self.phase == "check" or not ok):
                worst = list(self.findings.get(rank, {}).values())
                self.emit(RankChecked(run_id=self.run.run_id, rank=rank, ok=ok, outputs=worst))
        return verdict, failure

    def note(self, rank: int, outputs: list[OutputError], paper: bool) -> None:
        """Keeps the worst figures per rank and output."""
        kept = self.findings.setdefault(rank, {})
        for output in outputs:
            before = kept.get(output.output)
            if before is None or (before.ok and not output.ok) or (before.ok == output.ok and output.rms >= before.rms):
                kept[output.output] = output
        self.paper = paper if self.paper is None else self.paper and paper

    def mismatch(self, rank: int, verdict: Verdict, finding: dict[str, Any], outputs: list[OutputError]) -> Failure:
        """A failed comparison as a failure."""
        bad = next((output for output in outputs if not output.ok), None)
        if bad is None:
            message = finding["message"]
            return Failure(phase=self.phase, message=message, advice=ADVICE[verdict], rank=rank, output=finding.get("output"))
        share = bad.wrong / bad.total if bad.total else 0.0
        kind = "not finite" if verdict is Verdict.NONFINITE else "wrong"
        limit = "must match exactly" if bad.exact else f"relative RMS error {bad.rms:.2e}, limit {bad.rms_limit:.2e}"
        return Failure(
            phase=self.phase,
            message=f"output {bad.output}: {bad.wrong} of {bad.total} elements {kind} ({limit})",
            advice=ADVICE[verdict],
            rank=rank,
            output=bad.output,
            index=bad.first_wrong,
            expected=bad.expected,
            got=bad.got,
            wrong_share=share,
        )

    # --- timing --------------------------------------------------------------------------------------------

    def time(self) -> None:
        """Rounds of the same iterations in both worlds, in random order, until the interval settles."""
        budget = self.run.budget_s
        self.begin("time", self.stage.limits.time + budget)
        wanted = self.run.rounds
        count = self.stage.calls
        margin = interval.MARGIN[self.run.setting.device]
        until = time.monotonic() + budget
        empty = self.empty_batch()
        shown = 0.0
        done = 0
        for number in range(-1, wanted or MAX_ROUNDS):
            base, theirs = self.round(count, number)
            if number < 0:
                # The first pair warms caches and page tables of both worlds, and shows how short the contender's calls are.
                count = self.calls_for(base / count, theirs / count)
                continue
            self.times[0].append(max(base - empty, base / 2) / count * 1e6)
            self.times[1].append(max(theirs - empty, theirs / 2) / count * 1e6)
            self.fastest = min(self.fastest, theirs / count * 1e6)
            done = number + 1
            now = time.monotonic()
            last = now >= until if wanted is None else done >= wanted
            if now - shown > 0.1 or last:
                shown = now
                self.speed = interval.speedup(*self.times, margin)
                self.emit_timed(done, wanted or self.expected_rounds(done, until, budget), count)
                if wanted is None and done >= interval.MIN_ROUNDS and interval.settled(self.speed, margin):
                    break
            if last and (wanted is not None or done >= interval.MIN_ROUNDS or now > until + budget):
                break
        self.speed = interval.speedup(*self.times, margin)
        self.emit_timed(done, done, count)
        self.finish_timing()
        self.end()

    def calls_for(self, base: float, theirs: float) -> int:
        """Calls a batch: long enough for the quicker side, unless the other then takes too long (seconds per call)."""
        wanted = int(CONTENDER_BATCH / max(theirs, 1e-7)) + 1
        bearable = int(BASELINE_BATCH / max(base, 1e-7))
        return min(max(self.stage.calls, min(wanted, bearable)), self.stage.layout["slots"])

    @staticmethod
    def expected_rounds(done: int, until: float, budget: float) -> int:
        """How many rounds fit the budget at this pace."""
        left = until - time.monotonic()
        return max(done, min(MAX_ROUNDS, int(done * budget / max(budget - left, 1e-3))))

    def emit_timed(self, done: int, rounds: int, calls: int) -> None:
        """The latest round as an event."""
        assert self.speed is not None
        self.emit(
            Timed(
                run_id=self.run.run_id,
                round=done,
                rounds=rounds,
                calls=calls,
                baseline_us=self.times[0][-1],
                contender_us=self.times[1][-1],
                call=self.speed,
            )
        )

    def empty_batch(self) -> float:
        """Seconds that GO and DONE take by themselves (the smallest of a few, in the baseline world)."""
        self.baseline.tell(Kind.ARM, {"slots": [], "checking": False})
        self.await_all(self.baseline, Kind.ARMED, self.stage.limits.own)
        return min(self.clocked(self.baseline, 1.0) for _ in range(5))

    def clocked(self, world: World, limit: float) -> float:
        """Seconds from GO until the last rank is done, on the referee's clock."""
        started = world.go()
        self.await_all(world, Kind.DONE, limit)
        return (time.perf_counter_ns() - started) / 1e9

    def round(self, count: int, number: int) -> tuple[float, float]:
        """One batch in each world on the same fresh iterations; one of them, chosen at random, is compared."""
        self.freeze(True)
        self.draw(count, expect_poison=number >= 0)
        self.arm(self.baseline)
        if self.random.random() < 0.5:
            base = self.run_baseline()
            theirs = self.run_contender()
        else:
            theirs = self.run_contender()
            base = self.run_baseline()
        self.freeze(True)
        verdict, failure = self.compare([self.random.randrange(count)], ran=True)
        if failure is not None:
            raise Failed(verdict, failure)
        return base, theirs

    def run_baseline(self) -> float:
        """The baseline's batch, with the contender frozen and its CPU use watched."""
        self.freeze(True)
        before = processes.cpu_seconds(self.frozen)
        seconds = self.clocked(self.baseline, self.stage.limits.batch)
        self.idle_ticks += processes.cpu_seconds(self.frozen) - before
        self.baseline_seconds += seconds
        return seconds

    def run_contender(self) -> float:
        """The contender's batch."""
        self.freeze(False)
        self.arm(self.contender)
        self.reveal()
        return self.clocked(self.contender, self.stage.limits.batch)

    def freeze(self, stop: bool) -> None:
        """Stops or continues every process of the contender."""
        number = signal.SIGSTOP if stop else signal.SIGCONT
        self.frozen = processes.signal_tree(self.contender.process.pid, number)

    def finish_timing(self) -> None:
        """Late writers get one last chance to be seen; a disturbed baseline or an impossible time ends the run."""
        self.freeze(False)
        time.sleep(LATE_SECONDS)
        self.require_untouched()
        if self.idle_ticks > DISTURBED_SHARE * self.baseline_seconds and self.idle_ticks > 0.05:
            message = f"the kernel's processes used {self.idle_ticks:.2f} s of CPU while the baseline was timed"
            raise Failed(Verdict.BASELINE_DISTURBED, self.failure(message, Verdict.BASELINE_DISTURBED))
        assert self.speed is not None
        floor, limiter = bound_us(self.run.setting, self.peaks.impossible())
        if self.fastest < floor:
            message = f"{self.fastest:.3f} us a call, but {limiter} alone needs {floor:.3f} us"
            raise Failed(Verdict.IMPOSSIBLE_SPEED, self.failure(message, Verdict.IMPOSSIBLE_SPEED))

    # --- ends ----------------------------------------------------------------------------------------------

    def failure(self, message: str, verdict: Verdict, **details: Any) -> Failure:
        """A failure in the current phase."""
        return Failure(phase=self.phase, message=message, advice=ADVICE[verdict], **details)

    def explain(self, failed: WorldFailed) -> tuple[Verdict, Failure]:
        """What a rank's end means."""
        verdict, message, text = meaning(failed)
        phase = "compile" if verdict is Verdict.COMPILE_ERROR else self.phase
        failure = Failure(
            phase=phase, message=message, advice=ADVICE[verdict], rank=failed.rank, line=failed.line or None, text=text
        )
        return verdict, failure

    def explain_deadline(self, late: Deadline) -> Failure:
        """Which ranks did not finish; they are asked to print where they are."""
        self.timed_out = True
        for pid in processes.tree(self.contender.process.pid)[1:]:
            try:
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGUSR1)
            except OSError:
                continue
        who = ", ".join(map(str, late.ranks))
        seconds = time.monotonic() - self.phase_started
        message = f"rank{'s' if len(late.ranks) > 1 else ''} {who} did not finish the {self.phase} phase within {seconds:.1f} s"
        return self.failure(message, Verdict.TIMEOUT, rank=late.ranks[0] if late.ranks else None)

    def result(self, verdict: Verdict, failure: Failure | None) -> Result:
        """Everything found, in one struct."""
        outputs = [o for rank in self.findings.values() for o in rank.values()]
        worst = max(outputs, key=lambda o: (not o.ok, o.rms), default=None)
        timed = self.speed is not None and bool(self.times[0]) and verdict is Verdict.PASS
        mine, base = _median(self.times[1]), _median(self.times[0])
        roofline = None
        if timed and self.peaks.known:
            bound, limiter = bound_us(self.run.setting, self.peaks)
            roofline = Roofline(bound_us=bound, percent=100 * bound / mine, limiter=limiter)
        total = time.monotonic() - self.started
        return Result(
            verdict=verdict,
            detail=detail(verdict, failure),
            failure=failure,
            paper_rule=None if self.paper is None else "match" if self.paper else "mismatch",
            error=Errors(worst.rms, worst.max, worst.baseline_rms, worst.baseline_max) if worst else None,
            speedup=Speedup(call=self.speed, device=None) if timed else None,
            baseline_us=Microseconds(call=base, device=None) if timed else None,
            contender_us=Microseconds(call=mine, device=None) if timed else None,
            roofline=roofline,
            seconds=Seconds(
                load=self.seconds.get("load", 0.0),
                compile=self.seconds.get("compile", 0.0),
                check=self.seconds.get("check", 0.0),
                time=self.seconds.get("time", 0.0),
                total=total,
            ),
            jail="none",
            sealed=True,
            outcome=interval.outcome(self.speed) if timed and self.speed else "",
            rounds=len(self.times[0]),
        )


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else 0.0
