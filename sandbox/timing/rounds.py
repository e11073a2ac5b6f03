"""Timing: rounds of pairs of batches, one of each side, until the stopping rule ends them."""

import math
from collections.abc import Callable, Sequence

from sandbox.machine.devices import kind_of
from sandbox.machine.devices.kind import calls_for, pairs_for, warm_calls
from sandbox.protocol.events import Interval, Run, Timed
from sandbox.protocol.result import Samples
from sandbox.timing import random_effects  # noqa: F401 (numpy is loaded here, not while something is timed)
from sandbox.timing.clocks import Clock
from sandbox.timing.conclusion import Unconfirmed
from sandbox.timing.device_time import DeviceTime
from sandbox.timing.interval import SINGLE_WAITED, Pair, outcome, turns_of
from sandbox.timing.probes import Probes
from sandbox.timing.roofline import Peaks
from sandbox.timing.single_calls import SingleCalls
from sandbox.timing.stopping_rule import StoppingRule, is_clear
from sandbox.timing.turns import Batch, Turns

NOOP_FIRST, NOOP_EVERY = 4, 3
"""No-op batches before the first round, and rounds between later ones."""
FIRST_SECONDS, WARM_UP_SECONDS = 0.5, 10.0
"""Target length of the first batch, whose calls are estimated from a single one; time limit to start warm-up
batches."""
SHAPES_SECONDS, BATCH_SECONDS = 4.0, 0.1
"""Most seconds of a kernel's warm-up calls with new shapes, and of one batch of them. A batch this short is far from
its deadline. The first pair shows how long a call is; later calls are shorter."""
LEAST_ROUNDS, LEAST_BATCHES, FEWEST_CALLS = 12, 24, 2
"""Rounds (half of them in a duel, whose pairs take long), and pairs of batches of each clock, that fit into the longest time of
a run. Large inputs take long to draw, so rounds then have fewer pairs, and batches fewer calls, but not fewer than these."""
DRAW_SHARE = 0.25
"""Least share of a draw that is its calls'. The rest may be what any draw takes, 2 to 10 ms with GPUs."""
DEVICE_EVERY = 3
"""One round in so many is of device time, too, when it alone can conclude."""
FIRST_PAIRS = 3
"""Most pairs of a round of an adaptive run until each reference (at least two) could have had so many. On a machine without
history the interval of 12 pairs has a half width of 17 % with four references, 27 % with two (simulated with quiet noise)."""
MORE_CALLS, CHOSEN_FROM = 2, 4
"""Batches get more calls, once in a run, if this factor more would fit by the times of at least so many pairs."""
SHOWN_EVERY = 0.2
"""Seconds between two events. Their intervals are computed while inputs are drawn."""


class Rounds:
    """The timing phase of one run."""

    def __init__(self, run: Run, turns: Turns, peaks: Peaks) -> None:
        self.run = run
        self.turns = turns
        self.timer = turns.timer
        self.peaks = peaks
        self.prepared = turns.exchange.prepared
        self.pace = kind_of(run.setting.device).pace
        self.call = Clock("call", rival=len(turns.kernels) > 1, offsets=run.offsets)
        self.behind_gate = DeviceTime(turns, self.pace, run.offsets)
        self.probes = Probes(turns)
        self.single_calls = SingleCalls(turns)
        self.stopping_rule = StoppingRule(run.budget_s, run.rounds)
        self.give_way: Callable[[Callable[[], None]], float] = lambda stop: 0.0
        """Called between rounds: lets more urgent runs go first, and returns the seconds that this took."""
        self.calls = 0
        """Calls of a batch."""
        self.unconfirmed: Unconfirmed | None = None
        """The result of batches of many calls if single calls contradict it; else None."""
        self.shapes_seconds = 0.0
        """Seconds of warm-up calls with new shapes before the first round. They are no part of the budget."""
        self._chosen_again = False
        self._drawn: dict[int, float] = {}
        """Seconds of the warm-up's draws, by calls whose inputs were drawn."""
        self._pair_seconds = 0.0
        """Seconds of the last pair, with its inputs and comparisons."""
        self._turn = 0
        self._expected = 0
        """Rounds that are expected in total; 0: none has ended."""
        self._shown_s = 0.0
        self._estimated: tuple[tuple[object, ...], tuple[Interval | None, Interval | None]] | None = None
        """The last estimate, with what it is of: two clocks, their numbers of pairs, and the waits for cores."""

    @property
    def device(self) -> Clock:
        """Device time; it has no pairs if nothing is gated."""
        return self.behind_gate.clock

    @property
    def budget_clock(self) -> float:
        """A clock for the budget, in seconds. It stands still while kernels are held up and shapes are warmed up."""
        return self.timer.monotonic() - self.turns.held_up - self.shapes_seconds

    def measure(self) -> None:
        """Runs rounds until the stopping rule ends them.

        Raises:
            Failed: a timed iteration was wrong or late, the baseline was disturbed, or the time is impossible.
            OutputsLost: outputs of a timed batch are lost. It is raised at most once for a kernel.
            WorldFailed, Deadline: a kernel's world failed.
        """
        try:
            self._measure()
        finally:
            self.turns.unpin()

    def _measure(self) -> None:
        started = self.budget_clock
        self.turns.start()
        self.behind_gate.install()
        baseline_s, contender_s = self.warm_up()
        self.turns.pins = True
        self.behind_gate.try_out(self.calls, self.affordable_calls(baseline_s, contender_s))
        self.measure_overhead()
        ends = False
        while not ends:
            self.counted_round()
            if self.choose_calls_again():
                started = self.budget_clock
                self.measure_overhead()
                continue
            elapsed = self.budget_clock - started
            ends = self.stopping_rule.ends(elapsed, self.turns.rounds, self.fewest_pairs, self.lasting)
            self._expected = self.stopping_rule.expected(elapsed, self.turns.rounds)
        self.finish()

    def counted_round(self) -> None:
        """One round of each clock that still needs pairs, after more urgent runs."""
        self.turns.held_up += self.give_way(self.turns.stop_all)
        if self.round():
            if not self.device_rests:
                self.behind_gate.round(self.turns.rounds, self.affordable_pairs)
            self.turns.rounds += 1

    @property
    def device_rests(self) -> bool:
        """Whether device time leaves this round to end-to-end time, by the last look: it alone can conclude."""
        due = self.turns.rounds % DEVICE_EVERY == 0 or self.behind_gate.probes.left(self.behind_gate.calls)
        if due or self._estimated is None or self.run.rounds is not None:
            return False
        call, device = self._estimated[1]
        return device is not None and is_clear(device) and not (call is not None and is_clear(call))

    def finish(self) -> None:
        """Runs the probes that are due and the checks of a whole measurement. Raises as `measure` does."""
        self.show(self.turns.rounds)
        self.probes.hurry = True
        while self.probes.left(self.calls):
            self.round(counts=False)
        self.behind_gate.finish()
        self.turns.note_waits()
        self.confirm()
        self.turns.final_checks(self.peaks)

    def measure_on(self, seconds: float, asked: Callable[[], bool]) -> None:
        """Times more rounds, and checks again what `measure` checks. Raises as `measure` does.

        It ends after so many seconds, or when asked() says that something else is to be done.
        """
        started = self.budget_clock
        self.turns.pins = True
        self.probes.renew()
        self.behind_gate.probes.renew()
        for side in self.turns.kernels:
            assert side.observations is not None
            side.observations.ready_seconds = 0.0  # its limit is that of one measurement
        try:
            while self.budget_clock - started < seconds and not asked():
                self.counted_round()
                self._expected = self.turns.rounds
            self.finish()
        finally:
            self.turns.unpin()

    def measure_overhead(self) -> None:
        """Runs the first no-op batches, which need no fresh inputs."""
        if len(self.turns.exchange.tables[0]) < self.calls:
            self.turns.draw(self.calls)
        for _ in range(NOOP_FIRST):
            self.noop_batches()
        self.turns.compare([], [])

    def choose_calls_again(self) -> bool:
        """Starts the end-to-end measurement again if calls are so much shorter now that batches are far too short.

        A kernel that is slow only at first would else be timed in short batches. In these the overhead is large, and it could
        save a part of it. Returns whether the measurement starts again, which it does once.
        """
        if self._chosen_again or turns_of(self.call.raw) < CHOSEN_FROM:
            return False
        baseline_s, contender_s = (us / 1e6 for us in self.call.raw_medians())
        wanted = self.calls_lasting(baseline_s, contender_s)
        if wanted < MORE_CALLS * self.calls:
            return False
        self._chosen_again, self.calls, self.turns.rounds, self._expected = True, wanted, 0, 0
        self.turns.call_seconds = baseline_s, contender_s
        self.call = self.call.anew()
        self.stopping_rule = StoppingRule(self.run.budget_s, self.run.rounds)
        return True

    def confirm(self) -> None:
        """Compares a kernel's lead by end-to-end time with single calls, in which a kernel cannot work ahead.

        If single calls contradict the lead, the run's speedup is that of single calls, and device time is dropped.
        Device time is also dropped if it shows a lead that does not stand.
        """
        call, device = self.estimate()
        call = call if call is not None and self._leads(call) else None
        if device is not None and self._leads(device) and not self._stands(device, alone=call is None):
            self.behind_gate.give_up()
        if call is None:
            return
        baseline_us = self.call.medians()[0] or 0.0
        lead = call, baseline_us, self.probes.proven or self.calls == 1
        self.single_calls.measure(self.pairs, self.seconds, lead)
        contradicted = self.single_calls.contradict(*lead)
        # Launches that the device's work hides in a batch are part of a single call's time, but not behind the gate.
        if contradicted and not self.behind_gate.single_calls().confirm(call, baseline_us):
            alone = None if self.call.rival else self.single_calls.slowed(baseline_us)
            self.unconfirmed = Unconfirmed(call, baseline_us, alone)
            self.call.speed = self.single_calls.speedup(baseline_us)
            if max(self.turns.waited) > 0:
                self.call.speed, self.call.why = None, SINGLE_WAITED
            self.behind_gate.give_up()

    def _stands(self, device: Interval, alone: bool) -> bool:
        """Whether a lead by device time counts. Replaced inputs show nothing where calls count as begun before a kernel works."""
        if not alone or self.behind_gate.calls == 1 or not self.behind_gate.proven:
            return self.behind_gate.proven
        gated = self.behind_gate.single_calls()
        return bool(gated.pairs) and not gated.contradict(device, self.device.medians()[0] or 0.0, proven=False)

    def _leads(self, call: Interval) -> bool:
        """Whether a kernel is ahead of the other side. The baseline's lead needs no confirmation."""
        return outcome(call) == "faster" or (self.call.rival and outcome(call) == "slower")

    @property
    def seconds(self) -> tuple[float, float]:
        """(baseline's, contender's) seconds per call in the last batches, overhead included."""
        last = self.call.raw[-1]
        return last.baseline_us / 1e6, last.contender_us / 1e6

    @property
    def fewest_pairs(self) -> int:
        """The number of the contender's batches in pairs so far, of the clock that has the fewest."""
        return min([turns_of(self.call.raw)] + [len(self.device.raw)] * self.behind_gate.runs)

    def warm_up(self) -> tuple[float, float]:
        """Warms up the contender's world; the reference worlds have made their first calls before.

        Pairs that do not count show how long calls are. Returns (baseline's, contender's) seconds per call.
        """
        started = self.timer.monotonic()
        self.calls = 1  # a kernel may be far slower than the baseline
        found = self.warm_pairs(self.turns.references_now)
        first = found[0].baseline_us / 1e6, found[0].contender_us / 1e6
        self.turns.call_seconds, slower = first, max(first)
        most = min(self.prepared.calls, self.prepared.layout.slots, self.affordable_calls(*first))
        self.calls = max(1, min(most, int(FIRST_SECONDS / slower)))
        self.warm_up_shapes(*first)
        every, tried = range(len(self.turns.baseline_side.worlds)), self.calls
        found += self.warm_pairs(every, warm_calls(slower))
        seconds = self.choose_calls(found)
        if self.timer.monotonic() - started < WARM_UP_SECONDS:  # calls are quicker now
            longest = self.calls  # a world's first batch of so many calls takes less time (HELD)
            found += self.warm_pairs(every if longest > tried else self.turns.references_now)
            seconds = self.choose_calls(found)
            self.calls = min(self.calls, longest)
        return seconds

    def choose_calls(self, found: Sequence[Pair]) -> tuple[float, float]:
        """Chooses the calls of a batch by the quickest of these pairs. Returns (baseline's, contender's) seconds per call."""
        baseline_s = min(pair.baseline_us for pair in found) / 1e6
        self.turns.call_seconds = seconds = baseline_s, min(pair.contender_us for pair in found) / 1e6
        self.calls = self.calls_lasting(*seconds)
        return seconds

    def warm_up_shapes(self, baseline_s: float, contender_s: float) -> None:
        """Has kernels make as many calls on fresh inputs as references have made, if shapes differ from call to call.

        baseline_s, contender_s: seconds per call on either side.
        """
        started = self.timer.monotonic()
        for side, seconds in zip(self.turns.sides, (baseline_s, contender_s), strict=True):
            most, longest = (max(1, int(limit / max(seconds, 1e-7))) for limit in (SHAPES_SECONDS, BATCH_SECONDS))
            left = min(most, self.prepared.distinct_calls) if side.observations is not None else 0
            while left > 0:
                batch = Batch(0, min(left, longest, self.prepared.layout.slots))
                self.turns.draw(batch.calls)
                self.turns.timed(side, side.worlds[0], batch, 0)
                self.turns.compare([], [])
                left -= batch.calls
        self.shapes_seconds = self.timer.monotonic() - started

    def warm_pairs(self, references: Sequence[int], calls: int = 0) -> list[Pair]:
        """Times a batch of the contender and of each of these references on fresh inputs. They do not count.

        One iteration is compared, but in batches of several calls only sometimes. calls: untimed calls that a kernel's
        world makes before.
        """
        started = self.timer.monotonic()
        batch = Batch(0, self.calls)
        self.turns.draw(batch.calls)
        self._drawn[batch.calls] = self.timer.monotonic() - started
        for side in self.turns.kernels if calls else []:
            self.turns.get_ready(side, side.worlds[0], batch, 0, warm=calls)
        pairs = self.pairs(batch, references)
        compare = self.turns.compare if batch.calls == 1 else self.turns.compare_seldom
        compare([self.turns.random.randrange(batch.calls)], range(batch.calls))
        self._pair_seconds = (self.timer.monotonic() - started) * len(self.turns.references_now) / len(references)
        return pairs

    def round(self, counts: bool = True) -> bool:
        """Times pairs of batches on fresh iterations. Some batches are probes instead.

        One iteration of each pair is compared with the oracle, the others with the baseline. counts: whether the pairs
        belong to the measurement. Returns whether a pair was timed.
        """
        self.turns.check_memory()
        started = self.timer.monotonic()
        most = pairs_for(self.pace, self.calls, self.prepared.layout.slots)
        places = self.affordable_pairs if counts else max(1, min(most, self.probes.left(self.calls)))
        self.turns.draw(self.calls * places, self.show_seldom if counts else None)
        if counts and self.turns.rounds % NOOP_EVERY == NOOP_EVERY - 1:
            self.noop_batches()  # into slots that the pairs write to afterwards
            if len(self.turns.noops(0)) > 1:  # a kernel's, too; else a probe reports their results as written ahead
                self.turns.compare([], [])
                self.turns.draw(self.calls * places)
        self.probes.draw_meaningful(self.calls, places)
        chosen: list[int] = []
        timed: list[int] = []
        for place in range(places):
            batch = Batch(place * self.calls, self.calls)
            if self.call.raw and (probe := self.probes.draw(self.calls)):
                self.probes.run(probe, batch, self.seconds[probe.side is self.turns.contender_side])
                continue
            pairs = self.pairs(batch)
            self.call.raw += pairs if counts else []
            chosen.append(batch.first + self.turns.random.randrange(self.calls))
            timed += range(batch.first, batch.first + self.calls)
        self.probes.compare(timed)
        calls = 0 if self.prepared.varies else self.calls  # other shapes are no other offset
        beside = self.turns.compare(chosen, timed, calls)
        self.call.beside += beside if counts and calls else []
        self._pair_seconds = (self.timer.monotonic() - started) / places
        return bool(timed)

    def calls_lasting(self, baseline_s: float, contender_s: float) -> int:
        """Calls of a batch of the usual length, fewer if their inputs take long to draw.

        baseline_s, contender_s: seconds per call on either side.
        """
        lasting = calls_for(self.pace, baseline_s, contender_s, self.prepared.layout.slots)
        return min(lasting, self.affordable_calls(baseline_s, contender_s))

    def affordable_calls(self, baseline_s: float, contender_s: float) -> int:
        """Most calls of a batch, so that LEAST_BATCHES pairs of each clock fit into the time of an adaptive run."""
        pair_s = max(2 * self.pace.batch_s, self.stopping_rule.share_s(LEAST_BATCHES * (1 + self.behind_gate.runs)))
        most = max(self._drawn)
        draw_s = max(self._drawn[most] - min(self._drawn.values()), DRAW_SHARE * self._drawn[most]) / most
        beside_s = self.prepared.call_seconds * self.call.rival  # a reference runs the same iterations
        call_s = draw_s + len(self.turns.references_now) * baseline_s + contender_s + beside_s
        return int(min(self.pace.calls, max(FEWEST_CALLS, pair_s / call_s)))

    @property
    def affordable_pairs(self) -> int:
        """Most pairs of a round, so that LEAST_ROUNDS fit into the time of an adaptive run."""
        round_s = self.stopping_rule.share_s(LEAST_ROUNDS // len(self.turns.kernels))
        fit = pairs_for(self.pace, self.calls, self.prepared.layout.slots)
        if round_s < math.inf and turns_of(self.call.raw) < FIRST_PAIRS * max(2, len(self.turns.baseline_side.worlds)):
            fit = min(fit, FIRST_PAIRS)
        return int(min(fit, max(1, round_s / max(self._pair_seconds, 1e-6))))

    def pairs(self, batch: Batch, references: Sequence[int] | None = None) -> list[Pair]:
        """Times the same iterations in the contender's world and in each of these references, in random order.

        references: their indices; None: those of this round.
        """
        self._turn += 1
        baseline, contender = self.turns.sides
        turn = self.turns.turn_of(batch)
        numbers = self.turns.references_now if references is None else references
        order: list[int | None] = [*numbers, None]  # None: the contender
        self.turns.random.shuffle(order)
        us = {}
        for number in order:
            side, world = (contender, contender.worlds[0]) if number is None else (baseline, baseline.worlds[number])
            us[number] = self.turns.timed(side, world, batch, turn) / batch.calls * 1e6
        before = order[: order.index(None)]
        where = batch.calls, self.turns.rounds, self._turn, self.turns.cores(turn), self.turns.elapsed_s
        return [Pair(n, us[n], us[None], n in before, *where) for n in order if n is not None]

    def noop_batches(self) -> None:
        """Runs no-op batches, to measure the overhead."""
        self._turn += 1
        for side, world, number in self.turns.noops(self._turn):
            seconds = self.turns.timed(side, world, Batch(0, self.calls, noop=True), self._turn)
            self.call.note_noop(number, seconds / self.calls * 1e6)

    def estimate(self) -> tuple[Interval | None, Interval | None]:
        """The speedups so far by (call, device) time, computed once for the same pairs, because it takes milliseconds."""
        known = id(self.call), len(self.call.raw), id(self.device), len(self.device.raw), self.turns.waited
        if self._estimated is None or self._estimated[0] != known:
            self.call.waited = self.turns.waited
            device = self.device.estimate()
            self._estimated = known, (self.call.estimate(self.device), device)
        return self._estimated[1]

    def lasting(self) -> tuple[Interval | None, Interval | None]:
        """The speedups so far, without a lead by device time alone that `confirm` would drop: no inputs were replaced yet."""
        call, device = self.estimate()
        unproven = not (self.behind_gate.proven or self.behind_gate.probes.replaced_some)
        alone = call is None and device is not None and self._leads(device)
        return call, None if alone and unproven else device

    def samples(self) -> Samples:
        """All samples of the run's timing, for the result."""
        observations = self.turns.contender_side.observations
        foreign = observations.foreign_work.foreign_us if observations else {}
        return Samples(
            call=self.call.samples(),
            device=self.device.samples(),
            history={clock.name: [*clock.history] for clock in (self.call, self.device) if clock.history},
            harness_us=self.call.overhead_us,
            empty_gate_us=self.device.overhead_us * self.behind_gate.calls,
            foreign_us={name: [*us] for name, us in foreign.items()},
        )

    def show_seldom(self) -> None:
        """Emits the speedup so far, at most every SHOWN_EVERY seconds."""
        if self._expected and self.turns.elapsed_s - self._shown_s > SHOWN_EVERY:
            self._shown_s = self.turns.elapsed_s
            self.show(max(self._expected, self.turns.rounds))

    def show(self, expected: int) -> None:
        """Emits the speedup so far as an event. expected: total number of rounds."""
        call, device = self.estimate()
        if call is None:  # nothing can be said yet
            return
        last = self.call.pairs[-1]
        self.turns.exchange.emit(
            Timed(
                round=self.turns.rounds,
                rounds=expected,
                calls=self.calls,
                baseline_us=last.baseline_us,
                contender_us=last.contender_us,
                call=call,
                device=device,
            )
        )
