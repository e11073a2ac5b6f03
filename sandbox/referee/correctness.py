"""The correctness check: loads a kernel, runs it on fresh inputs, and turns each failure into a verdict."""

import contextlib
import secrets
from collections.abc import Iterator

import msgspec

from sandbox.machine import kernel_cache
from sandbox.machine.devices import kind_of
from sandbox.protocol.events import Checked, Failure, PhaseEnded, PhaseStarted, Run
from sandbox.protocol.frames import Kind
from sandbox.protocol.kernel_files import MAIN
from sandbox.protocol.messages import LoadKernel, Recopy
from sandbox.protocol.verdict import ADVICE, Verdict
from sandbox.referee.advice import advice_on
from sandbox.referee.labels import backends_of
from sandbox.referee.wording import StackPlace, blocked_rank, explain, place_of, places_words, whole
from sandbox.timing.probes import DRAWS, PAPER
from sandbox.timing.turns import LATE_SECONDS
from sandbox.worlds.deadlines import COMPILE
from sandbox.worlds.exchange import Exchange, Failed
from sandbox.worlds.failures import Deadline, WorldFailed

CHECKED_SLOTS = 3
"""Iterations of the check."""
BUSY_SHARE = 0.5
"""CPU time over wall time above which a world counts as computing."""
STACKS_SECONDS = 0.5
"""Time for ranks to print their stacks after a deadline."""


class CorrectnessCheck:
    """The correctness check of one kernel."""

    def __init__(self, run: Run, exchange: Exchange) -> None:
        """exchange: that of the contender's world, which is new."""
        self.run = run
        self.exchange = exchange
        self.contender = exchange.contender
        self.limits = exchange.prepared.limits
        self.emit = exchange.emit
        self.timer = exchange.timer
        self.started = self.timer.monotonic()
        self.seconds: dict[str, float] = {}
        self.compile_started: float | None = None
        """When the compilation that goes on now began; None outside one."""
        self.timed_out = False
        self.contender.wires.watch_compiling(self.compiling)

    def judge(self) -> tuple[Verdict, Failure | None]:
        """Loads and checks the kernel. Returns the verdict, and the failure if there is one."""
        verdict, failure = Verdict.PASS, None
        try:
            self.load()
            self.check()
        except (Failed, WorldFailed, Deadline) as error:
            verdict, failure = self.explain(error)
        seconds, rule = self.timer.monotonic() - self.started, self.paper_rule() or ""
        self.emit(Checked(verdict=verdict, seconds=seconds, failure=failure, paper_rule=rule))
        return verdict, failure

    def explain(self, error: Failed | WorldFailed | Deadline) -> tuple[Verdict, Failure]:
        """The verdict on an error that ended the run, with advice on usual mistakes."""
        if isinstance(error, Failed):
            verdict, failure, said = error.verdict, self.as_a_whole(error.failure), error.failure.message
        elif isinstance(error, WorldFailed):
            place = self.place_of(error.rank) if error.kind == "DIED" else None
            (verdict, failure), said = explain(error, self.exchange.phase, place), error.text
        else:
            verdict, failure, said = Verdict.TIMEOUT, self.explain_deadline(error), ""
        advice = advice_on(verdict, failure, said, self.run.kernel, kind_of(self.run.setting.device).on_gpus)
        return verdict, msgspec.structs.replace(failure, advice=advice or failure.advice)

    def as_a_whole(self, failure: Failure) -> Failure:
        """Rewords the failure of an output of which only the RMS error is beyond its limit, and no single element."""
        figures = self.exchange.findings.get(failure.rank or 0, {}).get(failure.output or "")
        if failure.wrong_share != 0.0 or figures is None or figures.exact or figures.rms <= figures.rms_limit:
            return failure
        hint = failure.message.partition(f"{figures.rms_limit:.2e})")[2]
        message = whole(figures) + hint
        return msgspec.structs.replace(failure, message=message, index=None, expected=None, got=None)

    @contextlib.contextmanager
    def phase(self, name: str, limit: float) -> Iterator[None]:
        """Reports a phase and notes its duration, also when it fails."""
        self.exchange.phase = name
        started = self.timer.monotonic()
        self.emit(PhaseStarted(phase=name, limit_s=limit))
        try:
            yield
            self.emit(PhaseEnded(phase=name, seconds=self.timer.monotonic() - started))
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + self.timer.monotonic() - started  # it may begin again

    def compiling(self, active: bool) -> None:
        """Reports compilation within load or the first call as a phase of its own."""
        now = self.timer.monotonic()
        if active:
            self.compile_started = now
            self.emit(PhaseStarted(phase="compile", limit_s=COMPILE))
        elif self.compile_started is not None:
            self.seconds["compile"] = self.seconds.get("compile", 0.0) + now - self.compile_started
            self.compile_started = None
            self.emit(PhaseEnded(phase="compile", seconds=self.seconds["compile"]))

    def paper_rule(self) -> str | None:
        """ "match" or "mismatch" under upstream's rule; None before the first comparison."""
        paper = self.exchange.paper
        return None if paper is None else "match" if paper else "mismatch"

    def load(self) -> None:
        """Sends the source; every rank imports it."""
        limit = self.limits.load
        self.build_shared()
        with self.phase("load", limit):
            self.exchange.hand_over_arenas()
            kernel = self.run.kernel
            self.contender.processes.show_compiled(kernel.sha256)
            folder = self.contender.processes.show_files(kernel)
            self.contender.tell(
                LoadKernel(self.run.kernel_name, kernel.source, folder, kernel.sha256 if folder else "")
            )
            self.exchange.await_all(self.contender, Kind.LOADED, limit)

    def build_shared(self) -> None:
        """Builds, outside the world, the shared parts of the kernel's backends that this machine does not have yet."""
        for backend in backends_of(self.run.kernel, anywhere=True):
            if backend.build is not None:
                started = self.timer.monotonic()
                if backend.build(kernel_cache.shared()):
                    self.seconds["compile"] = self.timer.monotonic() - started

    def check(self) -> None:
        """Makes the first calls on fresh inputs, compares them with the oracle, and checks for late writes."""
        limit = self.limits.first_call
        slots = list(range(min(CHECKED_SLOTS, self.exchange.prepared.layout.slots)))
        with self.phase("check", limit):
            self.exchange.draw(len(slots), timed=False)
            if self.run.setting.preset == PAPER:
                # Under upstream's distribution some work changes nothing, and a constant may be right.
                self.exchange.replace(secrets.choice(slots), DRAWS, [True])
            self.exchange.reveal(0, len(slots))  # the private copies must be made of complete inputs
            self.exchange.arm(self.contender, checking=True)
            self.contender.go()
            self.await_first_calls(limit)
            returned = self.timer.monotonic()
            verdict, failure = self.exchange.compare(slots)
            if failure is None:
                self.timer.sleep(max(0.0, LATE_SECONDS - (self.timer.monotonic() - returned)))
                self.exchange.require_untouched()
                return
            if verdict in (Verdict.WRONG_RESULT, Verdict.NONFINITE) and self.arrives_late(slots):
                verdict = Verdict.LATE_OUTPUT
                message = "the outputs were still being written when solution() returned"
                failure = msgspec.structs.replace(failure, message=message, advice=ADVICE[verdict])
            raise Failed(verdict, failure)

    def await_first_calls(self, limit: float) -> None:
        """Waits for the checked calls. Each has the limit.

        One call, usually the first, has it twice if the ranks are computing, for instance to tune variants.
        """
        before = self.contender.processes.activity().cpu_seconds
        begun, tuned = 1, False
        while True:
            try:
                self.exchange.await_done(self.contender, limit)
                return
            except Deadline:
                busy = self.contender.processes.activity().cpu_seconds - before >= BUSY_SHARE * limit
                last, begun = begun, self.contender.calls_begun()
                goes_on = last < begun <= CHECKED_SLOTS
                if not goes_on and (tuned or not busy):
                    raise
                tuned |= not goes_on

    def arrives_late(self, slots: list[int]) -> bool:
        """Whether the results of the checked calls are right when they are copied again later."""
        self.timer.sleep(LATE_SECONDS)
        try:
            self.contender.tell(Recopy())
            self.exchange.await_all(self.contender, Kind.RECOPIED, 2.0)
            return self.exchange.compare(slots, note=False)[0] is Verdict.PASS
        except (WorldFailed, Deadline):
            return False

    def explain_deadline(self, late: Deadline) -> Failure:
        """The failure for ranks that missed a deadline, with their stacks."""
        self.timed_out = True
        fault, advice = "did not finish in time", ""
        if self.compile_started is not None:
            self.compiling(False)
            fault = f"had not finished compiling after {self.seconds['compile']:.0f} s"
            advice = "Compile less: smaller functions, or fewer variants to tune."
        places = self.places(late)
        ranks = "ranks" if len(late.ranks) > 1 else "rank"
        message = f"{ranks} {', '.join(map(str, late.ranks))} {fault}"
        if places:
            message += f": {places_words(places, late.ranks)}"
        found = blocked_rank(places)
        rank = found.rank if found else late.ranks[0] if late.ranks else None
        line, text = (found.line, found.stack) if found else (None, "")
        return self.exchange.failure(message, Verdict.TIMEOUT, advice, rank=rank, line=line, text=text)

    def places(self, late: Deadline) -> list[StackPlace]:
        """The stack places of the ranks that did not finish, as far as known."""
        self.contender.processes.print_stacks()
        with contextlib.suppress(WorldFailed, Deadline):
            self.exchange.await_all(self.contender, late.kind, STACKS_SECONDS)
        return [place for place in map(self.place_of, late.ranks) if place is not None]

    def place_of(self, rank: int) -> StackPlace | None:
        """The place where a rank is or ended, by the last stack that it printed; None if that shows none."""
        name = MAIN if self.run.files else self.run.kernel_name
        return place_of(rank, self.contender.wires.said_by(rank), name, self.run.source.count("\n") + 1)
