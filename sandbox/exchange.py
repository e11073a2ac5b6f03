"""Moving iterations between the two worlds: fresh inputs in, outputs compared. Used by the check and by every timed round."""

import os
import time
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from sandbox.deadlines import Limits
from sandbox.events import Failure, OutputError, RankChecked
from sandbox.frames import Kind
from sandbox.verdict import ADVICE, Verdict
from sandbox.world import World

Reply = list[tuple[Any, list[int]]]


class AwaitAll(Protocol):
    """Waits for a frame of one kind from every rank of a world, serving everything else meanwhile.

    Raises WorldFailed or Deadline for the contender, and other exceptions for whatever else ends the run.
    """

    def __call__(self, world: World, kind: int, limit: float, may_be_late: bool = False) -> Reply: ...


def fresh_seeds(count: int) -> list[int]:
    """63 secret bits each."""
    return [int.from_bytes(os.urandom(8), "little") >> 1 for _ in range(count)]


class Stage:
    """The baseline world of a setting, with what it found out about the problem."""

    def __init__(self, world: World, limits: Limits, layout: dict[str, int], calls: int) -> None:
        self.world = world
        self.limits = limits
        self.layout = layout
        """Bytes of input and output slots, tensors that a header has room for, and the number of slots."""
        self.calls = calls
        """Baseline calls that fill a batch."""
        self.used = False


class Failed(Exception):
    """The run ended before its time: why, in the words of a verdict."""

    def __init__(self, verdict: Verdict, failure: Failure, side: int = 0) -> None:
        """side: whose fault it is, where two contenders run against each other."""
        super().__init__(failure.message)
        self.side = side
        self.verdict = verdict
        self.failure = failure


class Exchange:
    """The arenas of one run, and what has been found in them so far."""

    def __init__(
        self,
        run_id: str,
        stage: Stage,
        contender: World,
        await_all: AwaitAll,
        emit: Callable[[Any], None],
        side: int = 0,
    ) -> None:
        """side: whose arenas these are; 1 is a rival's."""
        self.side = side
        self.sides = [side]
        """Whose inputs are drawn: both sides' while two contenders are timed against each other."""
        self.run_id = run_id
        self.stage = stage
        self.baseline = stage.world
        self.contender = contender
        self.await_all = await_all
        self.emit = emit
        self.phase = "load"
        self.sealed = bool(stage.layout["sealed"])
        self.tables: list[Any] = []
        self.findings: dict[int, dict[str, OutputError]] = {}
        self.paper: bool | None = None

    def hand_over_arenas(self) -> None:
        """Fresh arenas for the contender, from each trusted rank to its twin."""
        assert self.contender.rank_pids  # found now, before a kernel can start processes of its own
        layout = {**self.stage.layout, "own": not self.stage.used, "side": self.side}
        self.stage.used = True
        self.baseline.tell(Kind.ARENAS, layout)
        for rank, (_, fds) in enumerate(self.await_all(self.baseline, Kind.REPLY, self.stage.limits.own)):
            self.contender.tell(Kind.ARENAS, layout, rank, tuple(fds))
            for fd in fds:
                os.close(fd)
        self.await_all(self.contender, Kind.MAPPED, self.stage.limits.load)

    def draw(self, count: int, expect_poison: bool) -> None:
        """Fresh secret inputs for the first `count` slots, and where each tensor lies (shapes may differ by rank)."""
        seeds = fresh_seeds(count)
        self.baseline.tell(Kind.DRAW, {"seeds": seeds, "intact": expect_poison, "sides": self.sides})
        replies = self.await_all(self.baseline, Kind.REPLY, self.stage.limits.own)
        for rank, (payload, _) in enumerate(replies):
            for side in payload["touched"]:
                raise self.late(rank, side)
        self.tables = [payload["tables"] for payload, _ in replies]

    def arm(self, world: World, checking: bool = False, epoch: int = 0) -> None:
        """Every rank of a world assembles the arguments of the drawn iterations. epoch: the gate's, for a gated batch."""
        for rank, table in enumerate(self.tables):
            world.tell(Kind.ARM, {"slots": table, "checking": checking, "epoch": epoch}, rank)
        self.await_all(world, Kind.ARMED, self.stage.limits.load)

    def reveal(self, side: int | None = None, own: bool = False, watch: bool = False) -> float:
        """Completes a contender's inputs: this exchange's own, or the given side's.

        own: the baseline's instead, which are complete, so that their way into its caches is the same.
        watch: also look out for work of others on the devices; returns the longest moment in microseconds that it took.
        """
        return self._reveal({"side": self.side if side is None else side, "own": own, "watch": watch})

    def foreign_us(self) -> float:
        """The longest moment in microseconds that somebody else's work took on the devices, looked at now."""
        return self._reveal({"side": None, "own": True, "watch": True})

    def _reveal(self, wish: dict[str, Any]) -> float:
        self.baseline.tell(Kind.REVEAL, wish)
        replies = self.await_all(self.baseline, Kind.REPLY, self.stage.limits.own)
        return max(float(payload["foreign_us"]) for payload, _ in replies)

    def await_done(self, world: World, limit: float) -> int:
        """Waits for a batch's end; perf_counter_ns of the moment it came. Unsealed outputs are fetched then."""
        self.await_all(world, Kind.DONE, limit)
        ended = time.perf_counter_ns()
        if not self.sealed:
            self.await_all(world, Kind.DELIVERED, self.stage.limits.load)
        return ended

    def wake(self, world: World) -> None:
        """Makes a world the one that runs, off the clock: switching to it (a context on the GPU, a process on a core) is
        not the kernel's time. Done to both worlds alike.
        """
        world.tell(Kind.WAKE)
        self.await_all(world, Kind.AWAKE, self.stage.limits.load)

    def discard_outputs(self) -> None:
        """Poisons the output arena without comparing anything."""
        for side in self.sides:
            self.baseline.tell(Kind.JUDGE, {"slots": [], "poison": True, "ran": False, "side": side})
            self.await_all(self.baseline, Kind.REPLY, self.stage.limits.own)

    def require_untouched(self) -> None:
        """The output arena was poisoned when it was read: nobody may have written since."""
        self.baseline.tell(Kind.INTACT)
        for rank, (payload, _) in enumerate(self.await_all(self.baseline, Kind.REPLY, self.stage.limits.own)):
            for side in payload["touched"]:
                raise self.late(rank, side)

    def late(self, rank: int, side: int) -> Failed:
        """Something still wrote to the outputs after they were due."""
        message = f"rank {rank} wrote to an output after its call had ended"
        return Failed(Verdict.LATE_OUTPUT, self.failure(message, Verdict.LATE_OUTPUT, rank=rank), side)

    def failure(self, message: str, verdict: Verdict, **details: Any) -> Failure:
        """A failure in the current phase."""
        return Failure(phase=self.phase, message=message, advice=ADVICE[verdict], **details)

    # --- comparing -----------------------------------------------------------------------------------------

    def compare(self, slots: list[int], ran: bool, note: bool = True) -> tuple[Verdict, Failure | None]:
        """Has the trusted ranks compare these slots; the first failing rank decides.

        ran: the baseline has run these iterations in its own arena; otherwise it runs them now.
        note: keep the figures and show them.
        """
        self.baseline.tell(Kind.JUDGE, {"slots": slots, "poison": True, "ran": ran, "side": self.side})
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
                self.emit(RankChecked(run_id=self.run_id, rank=rank, ok=ok, outputs=worst))
        return verdict, failure

    def note(self, rank: int, outputs: list[OutputError], paper: bool) -> None:
        """Keeps the worst figures per rank and output."""
        kept = self.findings.setdefault(rank, {})
        for output in outputs:
            before = kept.get(output.output)
            if (
                before is None
                or (before.ok and not output.ok)
                or (before.ok == output.ok and output.rms >= before.rms)
            ):
                kept[output.output] = output
        self.paper = paper if self.paper is None else self.paper and paper

    def mismatch(
        self, rank: int, verdict: Verdict, finding: dict[str, Any], outputs: list[OutputError]
    ) -> Failure:
        """A failed comparison as a failure."""
        bad = next((output for output in outputs if not output.ok), None)
        if bad is None:
            return self.failure(finding["message"], verdict, rank=rank, output=finding.get("output"))
        kind = "not finite" if verdict is Verdict.NONFINITE else "wrong"
        limit = (
            "must match exactly"
            if bad.exact
            else f"relative RMS error {bad.rms:.2e}, limit {bad.rms_limit:.2e}"
        )
        return self.failure(
            f"output {bad.output}: {bad.wrong} of {bad.total} elements {kind} ({limit})",
            verdict,
            rank=rank,
            output=bad.output,
            index=bad.first_wrong,
            expected=bad.expected,
            got=bad.got,
            wrong_share=bad.wrong / bad.total if bad.total else 0.0,
        )
