"""The turns of worlds during timing: one world runs, all others are stopped and observed."""

import contextlib
import math
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from sandbox.machine import placement, processes
from sandbox.machine.devices import kind_of
from sandbox.machine.processes import TOO_BUSY
from sandbox.protocol.events import Setting
from sandbox.protocol.frames import GatePage, Kind
from sandbox.protocol.messages import ChooseBatch
from sandbox.protocol.verdict import Verdict
from sandbox.timing.clocks import CONTENDER_INDEX, FOREIGN_US, RIVAL_INDEX, ForeignWork
from sandbox.timing.disturbance import WAITED_FROM, Priorities, StoppedActivity, waits
from sandbox.timing.interval import ReferenceBatch
from sandbox.timing.roofline import Peaks, bound_us
from sandbox.worlds.exchange import Exchange
from sandbox.worlds.failures import HarnessFailed, machine_too_busy
from sandbox.worlds.stopping import Activity, CannotStop
from sandbox.worlds.world import World

LATE_SECONDS = 0.05
MEMORY_SECONDS = 0.5
"""Interval of memory checks of a stopped kernel. A check takes 25 ms with a CUDA context."""
WATCHED_SHARE, WATCHED_OFTEN, WATCHED_SELDOM = 0.5, 16, 0.25
"""Share of the batches of one kind before which foreign work is watched for, and the share after so many batches. A watch takes
4 ms."""
UNCOUNTED_SHARE = 0.25
"""Share of the pairs that do not count whose outputs are compared. The oracle of a large problem takes 0.2 s."""
WELL_COMPARED, SELDOM_COMPARED = 12, 16
"""Iterations of timed pairs that are compared with the oracle unless they have the reference's bits, one of each pair. After them
it is one for so many pairs on average, drawn at random. All others need only be near the reference's outputs. The oracle of a
large problem takes 30 ms."""
FIRST_CYCLES = 2
"""Batches of each reference that show offsets in a duel: until then two references run each pair's iterations."""
READY_SECONDS = 0.05
"""Usual limit to assemble a batch, untimed calls left out. Time beyond it is subtracted from the run's elapsed time."""
READY_TIMES = 2.0
"""In total, a kernel may take this factor times the limit of timing to get ready for batches. No clock counts that time."""
SLOWER_THAN_KNOWN = 5.0
"""A batch may take this factor times the known time of its calls."""
MEANINGFUL = "; this iteration's inputs are not drawn as upstream draws them, but as in the other presets"
WARM_SECONDS, MOST_WARM = 0.002, 10
"""Target seconds and maximum number of the untimed calls before a batch."""


@dataclass
class Observations:
    """The observations of one kernel during timing."""

    stopped_activity: StoppedActivity = field(default_factory=StoppedActivity)
    """Activity of its processes while they were stopped."""
    after_done: StoppedActivity = field(default_factory=StoppedActivity)
    """Their activity, per rank, from the order to stop after a batch until it is read, at the latest when outputs are copied."""
    ready_seconds: float = 0.0
    """Seconds in which it got ready for batches: assembled arguments and made untimed calls."""
    quickest: float = math.inf
    """Shortest time per call of any batch in microseconds, nothing subtracted."""
    foreign_work: ForeignWork = field(default_factory=ForeignWork)
    """Other work on the devices while this kernel had to be idle."""


@dataclass
class TimedSide:
    """One side of a timed run: the reference worlds, or the world of a kernel."""

    exchange: Exchange
    worlds: Sequence[World]
    observations: Observations | None = None
    """None: no kernel runs in these worlds."""


@dataclass(frozen=True)
class Batch:
    """Neighbouring iterations that a world runs in one go."""

    first: int
    """Slot of the first one."""
    calls: int
    noop: bool = False
    """A no-op batch: it returns a stored result in place of each call."""


RunBatch = Callable[[TimedSide, World, Batch, int], float]
"""Runs a batch of a world in a turn, as `Turns.timed`; returns its seconds, infinite if they do not count."""


class Turns:
    """The turns of one timed run.

    One world runs at a time. All others except the oracle world are stopped. The inputs of a batch are completed right before
    it, while its world is stopped, too.
    """

    def __init__(
        self, setting: Setting, baseline_side: TimedSide, contender_side: TimedSide, references: TimedSide | None = None
    ) -> None:
        """baseline_side: the reference worlds, or a rival's world in their place. references: the reference worlds then.

        All sides use the same prepared setting.
        """
        self.setting = setting
        self.kind = kind_of(setting.device)
        self.baseline_side = baseline_side
        self.contender_side = contender_side
        self.sides = (baseline_side, contender_side)
        self.references = references or baseline_side
        self.exchange = contender_side.exchange
        self.limits = contender_side.exchange.prepared.limits
        self.timer = contender_side.exchange.timer
        self.random: random.Random = random.SystemRandom()
        """Draws which side runs first, which batches are watched and which outputs are compared."""
        self.call_seconds = 0.0, 0.0
        """Seconds per call on (the baseline's, the contender's) side; 0 until they are known."""
        self.pins = False
        """Whether first threads are pinned, which begins when all worlds are warm."""
        self.rounds = 0
        """Rounds of end-to-end timing so far."""
        self.held_up = 0.0
        """Seconds that kernels took to assemble batches, beyond the usual limit."""
        self.meaningful: list[int] = []
        """The slots with inputs of the problem's own distribution, if others have upstream's."""
        self._priorities = {side.worlds[0]: Priorities(self.kind) for side in self.kernels}
        self._beside_others = False
        self._left_over = False
        """Between two kernels: whether foreign work was there before the last one continued."""
        self._ran: Observations | None = None
        self._owner: Observations | None = None
        """The kernel that was continued last, and the one whose foreign work it is until then; None: not known."""
        self._revealed: Counter[tuple[int, str]] = Counter()
        """Batches that could be watched, by side and clock."""
        self._well_compared = 0
        """Iterations of timed pairs that were compared with the oracle."""
        self._memory_checked = 0.0
        self._compared: Counter[RunBatch] = Counter()
        """Batches that references have run beside two kernels."""
        self._delays: dict[tuple[str, int], list[int]] = {}
        """Nanoseconds by batch, for `beyond_usual`, by name and number of the side."""
        self._waits: Callable[[float], tuple[float, float]] = lambda least: (0.0, 0.0)
        self.waited = 0.0, 0.0
        """Shares of their time for which a rank of (the baseline's, the contender's) side waited for a core (`waits`)."""
        self._lost = [[0.0, 0.0], [0.0, 0.0]]
        """By side: seconds of its batches by call time, and of them those in which its ranks' cores were not their own."""
        gpus = contender_side.worlds[0].spec.gpus
        self._shares = [placement.cores_of(rank, setting.world, gpus) for rank in range(setting.world)]

    @property
    def kernels(self) -> list[TimedSide]:
        """The sides that run a kernel."""
        return [side for side in self.sides if side.observations is not None]

    def noops(self, turn: int) -> list[tuple[TimedSide, World, int]]:
        """The worlds that run no-op batches in a turn, with their sides, and numbers for `Clock.note_noop`.

        They are a reference, and each kernel that reuses memory: its outputs are copied in less time.
        """
        number = turn % len(self.references.worlds)
        kernels = zip(reversed(self.kernels), (CONTENDER_INDEX, RIVAL_INDEX), strict=False)
        reusing = [(side, side.worlds[0], index) for side, index in kernels if side.exchange.reuses]
        return [(self.references, self.references.worlds[number], number), *reusing]

    @property
    def references_now(self) -> Sequence[int]:
        """The indices of this round's reference worlds.

        Usually one, so that both sides of its pairs are stopped equally long. If shapes differ from call to call, all
        of them, because all worlds must run the same shapes.
        """
        count = len(self.baseline_side.worlds)
        return range(count) if self.exchange.prepared.varies else [self.rounds % count]

    @property
    def worlds(self) -> list[World]:
        """All worlds except the oracle world."""
        return [world for side in (self.references, *self.kernels) for world in side.worlds]

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start of timing."""
        return self.timer.monotonic() - self.started

    # --- stopping and continuing -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Prepares all worlds for the first round, after all process groups have been made."""
        self.started = self.timer.monotonic()
        # Not the oracle world, which is not timed: on a busy machine its polling threads would get no core.
        for world in self.worlds:
            self.kind.settle_threads(world.processes.rank_pids)
        self.stop_all()
        for side in self.kernels:
            self.stop(side, side.worlds[0])  # notes its priorities
        if self.kind.has_gate:
            self.gate_of(self.exchange.oracle)
            # Its ranks spin until a batch ends. On the core of a timed rank they make it 3 to 6 ms longer.
            apart = sorted(os.sched_getaffinity(0).difference(*self._shares))
            for rank in range(self.setting.world if len(apart) >= self.setting.world else 0):
                self.exchange.oracle.processes.pin(rank, apart)
        self.exchange.sides = [side.exchange.side for side in (self.references, *self.kernels)]
        self.exchange.discard_outputs()
        # Reading the many threads of a world with a gate takes milliseconds, so its waits are read only if a limit is exceeded.
        counted = self.kernels if self.kind.has_gate else self.sides
        self._waits = waits([side.worlds if side in counted else [] for side in self.sides], self.timer)

    def gate_of(self, world: World) -> GatePage:
        """The gate of a world, which is made once."""
        if world.gate is None:
            world.make_gate()
            self.exchange.await_all(world, Kind.GATED, self.limits.own)
        assert world.gate is not None
        return world.gate

    def stop_all(self) -> None:
        """Stops all worlds except the oracle world."""
        for world in self.worlds:
            world.processes.pause()

    def continue_only(self, world: World) -> None:
        """Continues one world and stops all others. A kernel's world first waits until its last outputs are copied."""
        self.stop_all()
        for side in self.kernels:
            if world in side.worlds:
                self.exchange.await_begun()
                self._note_after_done(side)
                if len(self.kernels) > 1 and self.kind.sees_foreign_work:
                    # Both are stopped. Work that was not there before the last one ran is its own, as long as it lasts.
                    before, self._left_over = self._left_over, self.exchange.foreign_us() > FOREIGN_US
                    self._owner = (self._owner if before else self._ran) if self._left_over else side.observations
                    self._ran = side.observations
        world.processes.resume()

    def pin(self, world: World, turn: int) -> None:
        """Pins each rank's first thread to one core of its share, the same core in every world of a turn.

        Cores of one machine differ for seconds at a time, on virtual machines by half and more. The two batches of a
        pair must not differ by that. Other threads of a rank keep the whole share. They must exist before the first
        thread is pinned, so nothing is pinned during the first calls of a world.
        """
        for rank, share in enumerate(self._shares):
            if len(share) > 1:
                world.processes.pin(rank, [placement.core_in_turn(share, turn)] if self.pins else share)

    def turn_of(self, batch: Batch) -> int:
        """The turn of a batch, the same in every world: a kernel must not know by its cores whether this is a probe."""
        return batch.first // batch.calls + self.rounds // len(self.baseline_side.worlds)

    def cores(self, turn: int) -> int:
        """A number for the cores of a turn: equal numbers mean equal cores."""
        return placement.core_in_turn(range(len(self._shares[0])), turn)

    def unpin(self) -> None:
        """Unpins all first threads, because the next problem's threads inherit their cores."""
        self.pins = False
        for world in self.worlds:
            self.pin(world, 0)

    # --- inputs ----------------------------------------------------------------------------------------------

    def draw(self, count: int, meanwhile: Callable[[], None] | None = None) -> None:
        """Draws fresh iterations for both sides, while every world is stopped. meanwhile(): called while they are drawn."""
        self.stop_all()
        self.meaningful = []
        self.exchange.draw(count, timed=True, meanwhile=meanwhile)

    def check_memory(self) -> None:
        """Checks the memory of the kernels, and notes waits, at most every MEMORY_SECONDS, while all worlds are stopped.

        The check fails the world of a kernel that exceeds its limit.
        """
        now = self.timer.monotonic()
        if now - self._memory_checked < MEMORY_SECONDS:
            return
        self._memory_checked = now
        self.stop_all()
        for side in self.kernels:
            side.worlds[0].check_memory()
        self.note_waits()

    def note_waits(self) -> None:
        """Reads `waited`, on CPU ranks. It takes milliseconds.

        A rank's threads also wait for each other. So waits count only as far as the rank did not use its cores in batches.
        """
        if not self.kind.has_gate:
            shares = zip(self._waits(WAITED_FROM), self._lost, strict=True)
            first, second = (min(self.setting.world * share, lost / max(ran, 1e-9)) for share, (ran, lost) in shares)
            self.waited = max(0.0, first), max(0.0, second)

    def reveal(self, side: TimedSide, batch: Batch, clock: str, watch: bool = True, reads: bool = False) -> None:
        """Completes a batch's inputs. clock: "call" or "device", for reports of foreign work. reads: as `Exchange.reveal`.

        Watching for foreign work takes milliseconds, so only a random share of the batches is watched, in a duel the kernels'.
        """
        self._revealed[side.exchange.side, clock] += watch
        often = self._revealed[side.exchange.side, clock] <= WATCHED_OFTEN
        share = WATCHED_SHARE if often else WATCHED_SELDOM
        watch = watch and self.random.random() < share and (len(self.kernels) == 1 or side in self.kernels)
        foreign_us = side.exchange.reveal(batch.first, batch.calls, watch, reads=reads)
        if watch:
            self._note_foreign_work(side, clock, foreign_us)

    def _note_foreign_work(self, side: TimedSide, clock: str, foreign_us: float) -> None:
        """Notes other GPU work right before a batch. It counts against the kernel that launched it, if the owner is known."""
        own = side.observations
        if foreign_us > FOREIGN_US and self.kind.used_by_others(side.worlds[0].spec.gpus):
            self._beside_others = True
        if len(self.kernels) == 1:
            observations = self.kernels[0].observations
            assert observations is not None
            observations.foreign_work.note(f"{'contender' if own else 'baseline'}, {clock}", foreign_us)
        elif (owner := self._owner) is not None:
            owner.foreign_work.note(f"{'its' if owner is own else 'the other'}, {clock}", foreign_us)

    # --- one batch, by its call time -------------------------------------------------------------------------

    def get_ready(self, side: TimedSide, world: World, batch: Batch, turn: int, epoch: int = 0, warm: int = 0) -> None:
        """Has a world assemble a batch and make untimed calls.

        epoch: the gate's epoch, for a gated batch. warm: number of untimed calls; 0: the usual number.

        Raises:
            Failed: a kernel has taken too long for this in total. Each time has its own deadline, too.
        """
        self.continue_only(world)
        self.pin(world, turn)
        call_seconds = max(self.call_seconds) if side in self.sides else self.exchange.prepared.call_seconds
        if not warm:  # a single call while the time of a call is unknown
            warm = max(1, min(MOST_WARM, int(WARM_SECONDS / call_seconds))) if call_seconds else 1
        reuses = side.exchange.reuses and world is side.exchange.contender
        chosen = ChooseBatch(batch.first, batch.calls, warm, batch.noop, epoch, reuses)
        started = self.timer.monotonic()
        if not self.exchange.sealed:  # the world copies its inputs itself before GO, unobserved
            self.reveal(side, batch, "call", watch=False)
        self.exchange.arm_and_choose(world, chosen)
        seconds = self.timer.monotonic() - started
        self.held_up += max(0.0, seconds - READY_SECONDS - SLOWER_THAN_KNOWN * warm * call_seconds)
        if side.observations is None:
            return
        side.observations.ready_seconds += seconds
        if (total := side.observations.ready_seconds) > READY_TIMES * self.limits.time:
            if self._waits(TOO_BUSY)[self.sides.index(side)] > 0.5:
                raise machine_too_busy("the kernel's untimed calls waited for one")
            words = f"untimed calls and the assembly of arguments took {total:.0f} s in total"
            raise side.exchange.failed(words, Verdict.TIMEOUT)

    def timed(self, side: TimedSide, world: World, batch: Batch, turn: int) -> float:
        """Runs a batch; returns the seconds from GO until the last rank is done, on the referee's clock.

        All other worlds are stopped.
        """
        self.get_ready(side, world, batch, turn)
        with self.watched(self.stopped_kernels(world)):
            if self.exchange.sealed:
                self.fill_in(side, world, batch, "call")
            used = processes.cpu_seconds(world.processes.rank_pids)
            started = world.go()
            seconds = (self.end(side, world, batch) - started) / 1e9
            used = processes.cpu_seconds(world.processes.rank_pids) - used
        self.require_priorities(side, world)
        if side in self.sides and not batch.noop:
            lost = self._lost[self.sides.index(side)]
            lost[:] = lost[0] + seconds, lost[1] + sum(map(len, self._shares)) * seconds - used
        if side.observations is not None and not batch.noop:
            side.observations.quickest = min(side.observations.quickest, seconds / max(batch.calls, 1) * 1e6)
        return seconds

    def batch_limit(self, calls: int) -> float:
        """The deadline of a batch in seconds: that of a first call for one call, else from the known time of calls."""
        single = self.limits.first_call if calls == 1 else 0.0
        slowest = max(*self.call_seconds, self.exchange.prepared.call_seconds)
        return max(self.limits.batch, single, SLOWER_THAN_KNOWN * calls * slowest)

    def fill_in(self, side: TimedSide, world: World, batch: Batch, clock: str) -> None:
        """Stops a world and completes its batch's inputs."""
        self.stop(side, world)
        with self.watched([] if side.observations is None else [side]):
            self.reveal(side, batch, clock, reads=self.kind.has_gate)

    def stopped_kernels(self, world: World) -> list[TimedSide]:
        """The kernels that are stopped while a world runs."""
        return [side for side in self.kernels if world not in side.worlds]

    @contextlib.contextmanager
    def watched(self, stopped: Sequence[TimedSide]) -> Iterator[None]:
        """Observes the stopped kernels of these sides within a block."""
        for side in stopped:
            self.await_stopped(side, side.worlds[0])
            self._note_after_done(side)
        started = self.timer.monotonic()
        before = [side.worlds[0].processes.activity() for side in stopped]
        with contextlib.ExitStack() as unheard:
            for side in stopped:
                unheard.enter_context(side.worlds[0].wires.unheard())
            yield
        seconds = self.timer.monotonic() - started
        for side, activity in zip(stopped, before, strict=True):
            assert side.observations is not None
            side.observations.stopped_activity.note(activity, side.worlds[0].processes.activity(), seconds)

    def _note_after_done(self, side: TimedSide) -> None:
        """Notes what a kernel's processes did after the order to stop, once a batch. Later activity is observed by `watched`."""
        used, side.exchange.used_since_done = side.exchange.used_since_done, None
        if used is not None and side.observations is not None:
            each = used() / side.worlds[0].ranks
            side.observations.after_done.note(Activity(0.0), Activity(each), 0.0)

    def stop(self, side: TimedSide, world: World, rank: int | None = None) -> None:
        """Stops one world, or one of its ranks, and waits until it has stopped.

        Raises what `await_stopped` raises, and for a whole world also what `require_priorities` raises.
        """
        if rank is None:
            world.processes.pause()
        else:
            world.processes.pause_rank(rank)
        self.await_stopped(side, world, rank)
        if rank is None:
            self.require_priorities(side, world)

    def require_priorities(self, side: TimedSide, world: World) -> None:
        """Raises Failed if a kernel has changed the priorities of its world's processes.

        The world is stopped, except after a batch without sealed memory.
        """
        if side.observations is not None and (fault := self._priorities[world].check(world)):
            raise side.exchange.failed(fault, Verdict.BASELINE_DISTURBED)

    def await_stopped(self, side: TimedSide, world: World, rank: int | None = None) -> None:
        """Waits until a world, or one of its ranks, has stopped.

        Raises Failed if a kernel's world does not stop, HarnessFailed if a reference world does not.
        """
        try:
            world.processes.await_stopped(rank)
        except CannotStop as error:
            if side.observations is None:
                raise HarnessFailed(f"the baseline: {error}") from None
            fault = f"the kernel cannot be stopped: {error}"
            raise side.exchange.failed(fault, Verdict.BASELINE_DISTURBED) from None

    def end(self, side: TimedSide, world: World, batch: Batch) -> int:
        """Waits until a batch ends, and stops its world. Returns its end in perf_counter_ns.

        The outputs of a kernel are copied from then on, because it runs again before they are compared.
        """
        copied = None if side.observations is None or batch.noop else (batch.first, batch.calls)
        ended = side.exchange.await_done(world, self.batch_limit(batch.calls), stops=True, copied=copied)
        return ended + self.late_reading_ns(side)

    def late_reading_ns(self, side: TimedSide) -> int:
        """The time that reading outputs took beyond the usual. It is part of the batch, because a device goes on meanwhile."""
        took, side.exchange.read_ns = side.exchange.read_ns, None
        return 0 if took is None else self.beyond_usual("reading", side, took)

    def beyond_usual(self, name: str, side: TimedSide, ns: int) -> int:
        """The part of a delay that exceeds the usual one in worlds without a kernel, in a duel on the lesser side."""
        if (side.observations is None) == (len(self.kernels) == 1):
            self._delays.setdefault((name, side.exchange.side), []).append(ns)
        usual = min((median(found) for (each, _), found in self._delays.items() if each == name), default=0.0)
        return max(0, ns - int(usual))

    # --- afterwards ------------------------------------------------------------------------------------------

    def compare(
        self, slots: Sequence[int], timed: Sequence[int], calls: int = 0, run: RunBatch | None = None
    ) -> list[ReferenceBatch]:
        """Compares the iterations that were just timed: these slots with the oracle, all others with the baseline.

        slots: drawn at random, one of each pair; few once WELL_COMPARED were, none beside meaningful ones. timed: all timed slots
        in order; if empty, outputs are discarded. If two kernels were timed, references run batches of so many calls for it, one
        after another, or one batch of all if calls is 0. run(): runs one; `timed` by default. Returns these batches.

        Raises:
            Failed: outputs are wrong. It names the side.
        """
        self.stop_all()
        if not timed:
            self.exchange.discard_outputs()
            return []
        meaningful = [slot for slot in self.meaningful if slot in timed]
        if meaningful or self._well_compared >= WELL_COMPARED:
            slots = [slot for slot in slots if not meaningful and self.random.random() * SELDOM_COMPARED < 1]
        self._well_compared += len(slots)
        others = [slot for slot in timed if slot not in slots and slot not in self.meaningful]
        ran = self._run_references(timed, calls, run or self.timed) if len(self.kernels) > 1 else []
        for side in self.kernels:
            if meaningful:
                side.exchange.require_right(meaningful, self.references.exchange.side, hint=MEANINGFUL)
            side.exchange.require_right(slots, self.references.exchange.side, others)
        self.references.exchange.discard_outputs()
        return ran

    def _run_references(self, timed: Sequence[int], calls: int, run: RunBatch) -> list[ReferenceBatch]:
        """Has references, one after another, run the iterations that two kernels have run; the first twice, for offsets soon."""
        found, worlds = [], self.references.worlds
        size = calls or timed[-1] + 1 - timed[0]
        few = calls > 0 and self._compared[run] < FIRST_CYCLES * len(worlds)
        for first in [*timed[::size]] * (1 + few):
            cycle, number = divmod(self._compared[run], len(worlds))
            self._compared[run] += calls > 0
            seconds = run(self.references, worlds[number], Batch(first, size), cycle)
            found.append((number, seconds / size * 1e6, self.cores(cycle)))
        self.stop_all()
        return [ran for ran in found if ran[1] < math.inf]

    def compare_seldom(self, slots: Sequence[int], timed: Sequence[int]) -> None:
        """Compares a random share of the pairs that do not count, as `compare` does; discards the others."""
        self.compare(slots, timed if self.random.random() < UNCOUNTED_SHARE else [])

    def final_checks(self, peaks: Peaks) -> None:
        """Checks for late writes, disturbances and impossible times after the last round.

        Raises:
            Failed: a check found a fault. It names the side.
        """
        for side in self.kernels:
            self._note_after_done(side)  # what it does from here on is not late
            side.worlds[0].processes.resume()
        self.timer.sleep(LATE_SECONDS)
        self.exchange.require_untouched()
        floor, limiter = bound_us(self.setting, peaks.impossible())
        other = "baseline" if self.baseline_side.observations is None else "other kernel"
        for side in self.kernels:
            observations = side.observations
            assert observations is not None
            verdict = Verdict.BASELINE_DISTURBED
            fault, foreign = observations.stopped_activity.fault(other), observations.foreign_work.fault
            if foreign and not fault and self._beside_others:
                advice = "The kernel is not at fault. Run it again when no other program uses these GPUs."
                raise HarnessFailed(f"other programs use these GPUs: {foreign}", advice)
            fault = fault or foreign
            late = observations.after_done
            if not fault and late.is_fault and not self.kind.on_gpus:
                verdict = Verdict.LATE_OUTPUT
                fault = (
                    f"each rank used {late.cpu_seconds:.3g} s of CPU time after it had ended its batch, "
                    f"in {late.disturbed} of {late.count} batches"
                )
            if not fault and observations.quickest < floor:
                verdict = Verdict.IMPOSSIBLE_SPEED
                fault = f"{observations.quickest:.3f} us per call, but {limiter} alone needs {floor:.3f} us"
            if fault:
                raise side.exchange.failed(fault, verdict)
