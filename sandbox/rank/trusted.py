"""A rank of the oracle world: draws inputs, runs the baseline and the oracle, and compares. It never loads a kernel."""

import itertools
import math
import mmap
import os
import select
import traceback
from collections.abc import Callable
from typing import Any

import torch

from problems.setting import RankSetting, SizesRefused
from sandbox.memory import slots
from sandbox.memory.slots import same_bits
from sandbox.memory.trees import Output, flatten
from sandbox.protocol import messages
from sandbox.protocol.frames import WORD, Kind
from sandbox.protocol.messages import OutputFinding
from sandbox.protocol.verdict import Verdict
from sandbox.rank.baseline_measurement import BaselineMeasurement, lack_of_memory
from sandbox.rank.outputs.comparison import Comparison, Expected, named
from sandbox.rank.problem_code import Leaves
from sandbox.rank.rank import Rank
from sandbox.rank.trusted_arenas import TrustedArenas

MOST_FAR, FURTHER = 4, 1.1
"""Most slots of outputs far from the baseline's that are compared at once, of the farthest and of others. A near one is compared,
too, if it is so many times as far as any compared before: a kernel may round more once few are."""
DRAWN_TO_CALIBRATE = 24
"""Most iterations of another distribution from which its usual errors are calibrated."""
CACHED_BYTES = 4 << 30
"""Bytes of unused blocks that the allocator keeps between orders. The other worlds share the device's memory."""
EXPECTED_BYTES = 1 << 28
"""Bytes of outputs that are compared at once. The oracle's outputs take up to four times as much. More would exceed
CACHED_BYTES, and then every comparison would allocate memory."""
LARGE = 1024
"""Least elements of a large input, or half of all. A kernel could save time by keeping what it has computed from one."""
SPINS = 100
"""Looks at the gate between two looks at the socket."""


class TrustedRank(Rank):
    """A trusted rank, which answers with messages."""

    comparison: Comparison
    """Exists from the first `measure_baseline` of a problem on."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.device.keep_blocks_whole()
        self.arenas = TrustedArenas(self.device)
        self.meaningful: Comparison | None = None
        """For slots with inputs of the problem's own distribution, if the run has another; made when needed."""
        self.constant = False
        """Whether upstream draws a large input alike in every iteration. Timed inputs are then the problem's own draws."""
        self.drawn_again: Leaves = {}
        """The last iteration that was drawn to replace another, if it fits."""
        self.kept: dict[int, Expected] = {}
        """By slot: what a kernel was compared with by the last order. The next one may compare a second kernel's outputs."""
        self.drawn_from: dict[int, tuple[int | None, RankSetting]] = {}
        """By slot: the seed of its iteration, or None if the inputs of only one rank were drawn anew, and the setting."""
        self.handlers |= {
            messages.MeasureBaseline: self.measure_baseline,
            messages.MakeArenas: self.make_arenas,
            messages.Draw: self.draw,
            messages.Reveal: self.reveal,
            messages.MapGate: self.map_gate,
            messages.TakeOutputs: self.take,
            messages.CompareOutputs: self.judge,
            messages.CheckPoison: lambda order, fds: self.reply(order, self.arenas.touched(order.sides)),
            messages.LookAhead: self.look_ahead,
            messages.DrawAgain: self.draw_again,
            messages.MeasurePeaks: lambda order, fds: self.reply(order, self.device.peaks()),
            messages.MeasureTransfers: self.measure_transfers,
            messages.Sync: lambda order, fds: self.reply(order, order.number),
        }

    def close_problem(self) -> None:
        """Frees also the arenas of all sides, which other worlds may still have mapped."""
        vars(self).pop("comparison", None)
        self.meaningful, self.drawn_again, self.kept = None, {}, {}
        self.arenas.clear()
        super().close_problem()

    def reply(self, order: messages.Order[messages.R], contents: messages.R, fds: tuple[int, ...] = ()) -> None:
        """Sends the answer to an order."""
        messages.reply(self.sock, order, contents, fds)

    def blame(self, error: BaseException) -> None:
        """Reports an exception of the harness or the problem."""
        kind = Kind.REFUSED if isinstance(error, SizesRefused) else Kind.BROKEN
        text = str(error) if isinstance(error, SizesRefused) else "".join(traceback.format_exception(error))
        self.fail(kind, text)

    def measure_baseline(self, order: messages.MeasureBaseline, fds: list[int]) -> None:
        """Draws and runs the baseline a few times to find sizes of slots, time of a call, and usual errors (collective)."""
        self.solution = self.code.baseline
        self.comparison = Comparison(self.code, self.setting)
        measurement = BaselineMeasurement(self.code, self.setting, self.device, self.comparison)
        try:
            self.comparison.calibrate(map(measurement.run, order.seeds))
        except (RuntimeError, TypeError) as error:  # no kernel runs yet
            if lack := lack_of_memory(error):
                raise SizesRefused(f"not one iteration fits this rank's device: {lack}") from None
            raise
        if self.setting.upstream_arguments:
            changing = [self.changing(each, order.seeds) for each in (self.setting_of(True), self.setting)]
            (own, table), (theirs, other) = changing
            fits = not self.comparison.any_rank(table != other)
            self.constant = fits and self.comparison.any_rank(bool(own - theirs))
        self.device.free_blocks(CACHED_BYTES)
        self.arenas.filled = max(64, *measurement.out_sizes)
        # Its first call makes a context of the device. That takes half a second, thrice as long while reference worlds start.
        self.device.complete(None, self.arenas.own, [], watch=False)
        self.reply(order, measurement.result(order.arena_bytes, order.references, EXPECTED_BYTES))

    def changing(self, setting: RankSetting, seeds: list[int]) -> tuple[set[str], object]:
        """The names of the large inputs that differ between two iterations, and the layout of inputs."""
        first, second = (self.code.draw(setting, seed) for seed in seeds[:2])
        large = min(LARGE, sum(tensor.numel() for tensor in first.values()) // 2)
        return {name for name in _differing(first, second) if first[name].numel() >= large}, slots.lay_out(first)[0]

    def make_arenas(self, order: messages.MakeArenas, fds: list[int]) -> None:
        """Makes the arenas of a side and sends their descriptors."""
        made = self.arenas.make(order, bool(self.code.problem.mutates))
        self.reply(order, None, fds=made)
        for fd in made:
            os.close(fd)

    def draw(self, order: messages.Draw, fds: list[int]) -> None:
        """Fills slots with new iterations. Contenders get withheld inputs right before their GO."""
        used = self.arenas.begin(len(order.seeds))
        touched = self.arenas.touched(order.sides, used) if order.timed else []
        self.comparison.new_iterations()
        self.drawn_again, self.kept = {}, {}
        setting = self.setting_of(self.constant and order.timed)
        self.drawn_from = {index: (seed, setting) for index, seed in enumerate(order.seeds)}
        if setting is not self.setting:
            self.calibrate_meaningful(setting, order.seeds[0])
        tables = []
        for index, seed in enumerate(order.seeds):
            tensors = self.code.draw(setting, seed)
            table, size = slots.lay_out(tensors)
            if size > self.arenas.in_bytes:
                raise SizesRefused(
                    f"inputs of {size} bytes do not fit the slot of {self.arenas.in_bytes}; draws differ too much in size"
                )
            withheld = set(filter(self.code.is_withheld, tensors))
            self.arenas.fill(index, table, tensors, order.sides, withheld)
            tables.append(messages.SlotTable(index, table))
        self.device.free_blocks(CACHED_BYTES)
        self.device.synchronize()
        self.reply(order, messages.Drawn(tables, touched))

    def reveal(self, order: messages.Reveal, fds: list[int]) -> None:
        """Completes the inputs of some slots right before a side's GO. Without a side it only watches the device."""
        side = None if order.side is None else self.arenas.sides[order.side]
        ranges = []
        if side is not None and order.rank in (None, self.rank):
            for slot in range(order.first, order.first + order.count):
                ranges += side.withheld.get(slot, [])
        # Shared inputs are complete, but their copy into the caches is repeated.
        to = None if side is None or side.shared else side.inputs
        self.arenas.at_end = None  # outputs of the last batch are taken, or nobody takes them
        self.reply(order, self.device.complete(to, self.arenas.own, ranges, order.watch))
        if order.side is not None and order.epoch:
            self.read_at_end(order.epoch, self.arenas.reader(order.side, order.first, order.count))

    def map_gate(self, order: messages.MapGate, fds: list[int]) -> None:
        """Maps the page through which the referee announces the end of a batch, and this rank that it has read the outputs."""
        self.gate = memoryview(mmap.mmap(fds[0], 0)).cast("I")
        os.close(fds[0])
        self.say(Kind.GATED)

    def read_at_end(self, epoch: int, read: Callable[[], None]) -> None:
        """Spins until the referee announces the end of a batch, and reads outputs at once.

        The next order ends it, too, because the batch may have failed.
        """
        gate = self.gate
        while not any(gate[0] >= epoch for _ in range(SPINS)):
            if select.select([self.sock], [], [], 0)[0] and gate[0] < epoch:
                return
        read()
        gate[WORD * (self.rank + 1) // gate.itemsize] = epoch

    def draw_again(self, order: messages.DrawAgain, fds: list[int]) -> None:
        """Draws an iteration and checks if it fits in a slot, or writes the last drawn one to this rank's inputs."""
        fits = True
        if order.replace:
            self.replace(order)
        elif order.alone is None:
            fits = self.draw_for_all(order)
        else:
            fits = self.draw_for_one(order, order.alone)
        self.device.synchronize()
        self.reply(order, fits)

    def draw_for_all(self, order: messages.DrawAgain) -> bool:
        """Draws an iteration for all ranks. Returns whether what contenders can read before GO stays the same."""
        self.drawn_again = tensors = self.code.draw(self.setting_of(order.meaningful), order.seed)
        early = {name: tensor for name, tensor in tensors.items() if not self.code.is_withheld(name)}
        own = self.arenas.inputs_of(order.slot)
        return slots.lay_out(tensors)[0] == self.arenas.tables[order.slot] and not _differing(early, own)

    def draw_for_one(self, order: messages.DrawAgain, rank: int) -> bool:
        """Draws the slot's iteration again with other random numbers of one rank.

        Returns whether withheld inputs of this rank change if it is that one, and nothing else changes.
        """
        seed, setting = self.drawn_from[order.slot]
        if seed is None:
            return False
        is_it = rank == self.rank
        self.drawn_again = tensors = self.code.draw(setting, seed, order.seed if is_it else None)
        if slots.lay_out(tensors)[0] != self.arenas.tables[order.slot]:
            return False
        differing = _differing(tensors, self.arenas.inputs_of(order.slot))
        return bool(differing) == is_it and all(map(self.code.is_withheld, differing))

    def replace(self, order: messages.DrawAgain) -> None:
        """Writes the last drawn iteration to this rank's inputs. order: the one that drew it, with `replace`."""
        own = self.arenas.inputs_of(order.slot)
        for name, tensor in self.drawn_again.items():
            own[name].copy_(tensor)
        self.drawn_again, self.kept = {}, {}
        if order.alone is not None:
            self.drawn_from[order.slot] = None, self.drawn_from[order.slot][1]
            return
        setting = self.setting_of(order.meaningful)
        self.drawn_from[order.slot] = order.seed, setting
        if setting is not self.setting:
            self.calibrate_meaningful(setting, order.seed)

    def setting_of(self, meaningful: bool) -> RankSetting:
        """The setting from which a new iteration is drawn: the run's own object, unless the distribution is another."""
        other = meaningful and self.setting.upstream_arguments
        return self.setting.replace(distribution="meaningful", beside_upstream=True) if other else self.setting

    def calibrate_meaningful(self, setting: RankSetting, seed: int) -> None:
        """Measures the baseline's usual errors on inputs of the problem's own distribution (collective).

        setting: has that distribution. Other arguments of calls stay those of the run, which its worlds have assembled.
        """
        if self.meaningful is None:
            self.meaningful = Comparison(self.code, self.setting)
            draws = (self.code.draw(setting, seed + number) for number in range(1, DRAWN_TO_CALIBRATE + 1))
            self.meaningful.calibrate(map(self.meaningful.expected, draws))
        self.meaningful.new_iterations()

    def comparison_of(self, slot: int) -> Comparison:
        """The comparison for the inputs in a slot."""
        return self.comparison if self.drawn_from[slot][1] is self.setting else self.meaningful or self.comparison

    def look_ahead(self, order: messages.LookAhead, fds: list[int]) -> None:
        """Checks slots of calls that have not begun for overwritten poison, and notes the outputs of those that have ended."""
        self.arenas.note_ended(order.side, order.batch, order.ended[self.rank])
        self.reply(order, self.arenas.any_written(order.side, order.first, order.count))

    def measure_transfers(self, order: messages.MeasureTransfers, fds: list[int]) -> None:
        """Measures the times of transfers between every two ranks (collective)."""
        from sandbox.rank import transfers

        self.reply(order, transfers.measure(self.device, order.backends))

    def take(self, order: messages.TakeOutputs, fds: list[int]) -> None:
        """Copies outputs that are compared later, because the kernel runs again before that."""
        self.arenas.take(order.side, order.first, order.count)
        self.device.synchronize()
        self.reply(order, None)

    # --- comparing -----------------------------------------------------------------------------------------

    def judge(self, order: messages.CompareOutputs, fds: list[int]) -> None:
        """Compares the contender's outputs of some iterations, the same on all ranks (collective).

        It copies the contender's bytes first, and poisons the arena at once.
        """
        arenas = self.arenas
        side = arenas.sides[order.side]
        copies = {index: arenas.slot_of(side.due, index).clone() for index in self.doubtful(order)}
        arenas.poison(order.side)
        self.device.synchronize()
        findings, known, self.kept = [], self.kept, {}
        at_once = max(1, EXPECTED_BYTES // arenas.out_bytes)
        for begin in range(0, len(copies), at_once):
            part = dict(itertools.islice(copies.items(), begin, begin + at_once))
            expected = {n: known[n] if n in known else self.expected(n, order.against) for n in part}
            findings += self.findings(part, expected)
            self.kept = expected if order.against is not None and len(part) == len(copies) else {}
        self.device.free_blocks(CACHED_BYTES)
        wrong = [finding for finding in findings if finding.verdict is not Verdict.PASS]
        right = [finding for finding in findings if finding.verdict is Verdict.PASS]
        self.reply(order, right + wrong[:1])  # one, so that all places show one iteration's wrong elements

    def findings(self, copies: dict[int, torch.Tensor], expected: dict[int, Expected]) -> list[OutputFinding]:
        """Compares the outputs of these slots with the expected ones (collective)."""
        for comparison in filter(None, (self.comparison, self.meaningful)):
            comparison.note({n: each for n, each in expected.items() if self.comparison_of(n) is comparison})
        return [
            self.comparison_of(index).finding(slots.Unpacked(copy, self.arenas.room), expected[index], index)
            for index, copy in copies.items()
        ]

    def doubtful(self, order: messages.CompareOutputs) -> list[int]:
        """The slots whose outputs are compared with the oracle, the same on all ranks (collective).

        Without references (`order.against` is None) these are all of `order.slots`; with them only those whose values differ from
        the baseline's. Of `order.beside` come the MOST_FAR farthest of those that are not near on some rank, and as many others
        by their seeds, which are secret: a kernel may make right ones the farthest. Or else one that is FURTHER than all before.
        """
        compared = sorted({*order.beside, *(order.slots if order.against is not None else ())})
        if not compared:
            return order.slots
        arenas, side = self.arenas, self.arenas.sides[order.side]
        if order.against is None:
            each = [
                self.comparison_of(n).distance_of(
                    slots.Unpacked(arenas.slot_of(side.due, n), arenas.room), self.plain(n), arenas.inputs_of(n)
                )
                for n in compared
            ]
            found = torch.tensor(each, dtype=torch.float64, device=self.device.torch_device)
            self.comparison.reduce(found)
        else:
            found = self.comparison_of(compared[0]).distance(
                side.due, arenas.sides[order.against].outputs, compared, arenas.out_bytes, arenas.room, arenas.inputs_of
            )
        distances = dict(zip(compared, found.tolist(), strict=True))
        before = max([side.farthest, *(distances[n] for n in order.slots if n in distances)])
        farthest = sorted(((distances[n], n) for n in order.beside), reverse=True)
        usual = FURTHER * before if before >= 0 else math.inf  # nothing was compared yet
        far = [each for each in farthest if each[0] > 1] or [each for each in farthest[:1] if each[0] > usual]
        far[MOST_FAR:] = sorted(far[MOST_FAR:], key=lambda each: self.drawn_from[each[1]][0] or 0)[:MOST_FAR]
        side.farthest = max([before, *(distance for distance, _ in far)])
        return [n for n in order.slots if distances.get(n) != 0] + [n for _, n in far]

    def expected(self, index: int, against: int | None) -> Expected:
        """The expected outputs of a slot (collective). against: the side with the baseline's outputs."""
        arenas = self.arenas
        if against is None:
            return self.comparison_of(index).expected(arenas.inputs_of(index))
        packed = slots.Unpacked(arenas.slot_of(arenas.sides[against].outputs, index), arenas.room)
        # The arena also holds outputs that the baseline returned on the host.
        found = [t if device else t.cpu() for t, device in zip(packed.tensors, packed.devices, strict=True)]
        return self.comparison.expected(arenas.inputs_of(index), (packed.structure, named(packed.structure, found)))

    def plain(self, index: int) -> Output:
        """The baseline's outputs on the iteration of a slot (collective)."""
        return flatten(self.code.call(self.code.baseline, self.arenas.inputs_of(index), self.setting))


def _differing(tensors: Leaves, others: Leaves) -> list[str]:
    """The names of the tensors whose bytes differ."""
    return [name for name, tensor in tensors.items() if not same_bits(tensor.to(others[name].device), others[name])]
