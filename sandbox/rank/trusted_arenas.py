"""The arenas of a trusted rank: its own inputs, and what the worlds of every side of a run read and write."""

import os
import random
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

import torch

from sandbox.memory import slots
from sandbox.memory.host import TensorPlace
from sandbox.protocol.messages import MakeArenas
from sandbox.rank.devices.device import Device
from sandbox.rank.problem_code import Leaves

READ_BYTES = 512
"""Bytes of each output that are read at the end of a batch."""


@dataclass
class SideArenas:
    """The arenas of one side of a run: what its worlds read, what they write, and what they may not read yet."""

    inputs: torch.Tensor
    outputs: torch.Tensor
    shared: bool
    """Whether the inputs are the trusted rank's own."""
    withheld: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """By slot: byte ranges of the inputs that are filled in right before the GO."""
    taken: torch.Tensor | None = None
    """Copies of outputs from the time when they were due, laid out like `outputs`."""
    written: int = 0
    """Slots, from the first on, that batches of present or earlier iterations may have filled since `outputs` were poisoned."""
    takes: bool = False
    """Whether outputs were taken since the last draw, so that the copies are compared."""
    farthest: float = -1.0
    """Largest distance from the baseline's of outputs that were compared with the oracle, in units of the limit; -1: none was."""

    @property
    def due(self) -> torch.Tensor:
        """The outputs that are compared."""
        return self.taken if self.takes and self.taken is not None else self.outputs


class TrustedArenas:
    """Flat uint8 tensors, divided into slots by the layout of the last `make`."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.own = torch.empty(0)
        """This rank's own inputs, which are always complete. Sides that run no kernel may read them as well."""
        self.sides: dict[int, SideArenas] = {}
        """By number: see sandbox.worlds.exchange."""
        self.tables: dict[int, list[TensorPlace]] = {}
        """By slot: where the tensors of the iteration in it lie."""
        self.in_bytes = self.out_bytes = self.room = 0
        self.filled = 64
        """Bytes after the header of a slot that the largest output of the baseline fills."""
        self.drawn = 0
        """Slots, from the first on, that hold the present iterations."""
        self._own_fd = -1
        self.late: set[int] = set()
        """Sides whose outputs changed after they had been read at the end of a batch."""
        self.at_end: tuple[int, int, slice, torch.Tensor] | None = None
        """The outputs of the last batch at its end: side, first slot, the bytes of a slot that were read, and these by slot."""
        self.ended = 0, self.own
        """Outputs of calls that had ended at the last stop of a batch: their place in the arena, and their bytes."""

    def make(self, order: MakeArenas, writable: bool = False) -> tuple[int, int]:
        """Makes the arenas of a side. Returns the descriptors of inputs and outputs, which the caller closes.

        writable: solutions change inputs in place. Then each side has inputs of its own, which it may write.
        """
        layout = order.layout
        self.in_bytes, self.out_bytes, self.room = layout.in_bytes, layout.out_bytes, layout.room
        self.device.free_cache()
        self.device.sealed = layout.sealed
        in_total, out_total = self.in_bytes * layout.slots, self.out_bytes * layout.slots
        for side in list(self.sides) if order.own else [order.side]:
            self._drop(side)
        if order.own:
            self.drawn = 0
            self._make_own(in_total)
        shared = order.shared and not writable
        if shared:
            in_fd, inputs = os.dup(self._own_fd), self.own
        else:
            in_fd, inputs = (self.device.output_arena if writable else self.device.input_arena)(in_total)
        out_fd, outputs = self.device.output_arena(out_total)
        outputs.fill_(slots.POISON)
        self.late.discard(order.side)
        self.sides[order.side] = SideArenas(inputs, outputs, shared)
        self.device.synchronize()
        return in_fd, out_fd

    def clear(self) -> None:
        """Frees all arenas, this rank's own as well, because the next problem makes others."""
        self.device.synchronize()
        for number in list(self.sides):
            self._drop(number)
        self.device.release(self.own)
        self.own = torch.empty(0)
        self._close_own()
        self.tables.clear()

    def _close_own(self) -> None:
        if self._own_fd >= 0:
            os.close(self._own_fd)
            self._own_fd = -1

    def _drop(self, number: int) -> None:
        """Frees the arenas of a side."""
        gone = self.sides.pop(number, None)
        if gone is not None:
            if not gone.shared:
                self.device.release(gone.inputs)
            self.device.release(gone.outputs)

    def _make_own(self, size: int) -> None:
        self.device.release(self.own)
        self._close_own()
        if self.device.sealed:
            self._own_fd, self.own = self.device.input_arena(size)
        else:
            self.own = torch.empty(0)  # frees the old one before the next is allocated
            self.own = torch.empty(size, dtype=torch.uint8, device=self.device.torch_device)

    def poison(self, number: int) -> None:
        """Poisons the outputs of a side where batches may have written. Other writes fail a later draw, or the last check."""
        side = self.sides[number]
        side.outputs[: side.written * self.out_bytes].fill_(slots.POISON)
        side.written = self.drawn

    def begin(self, count: int) -> int:
        """Prepares for new iterations in the first `count` slots: forgets old withheld inputs and taken outputs.

        Returns the number of slots that these or the last iterations use.
        """
        before, self.drawn = self.drawn, count
        self.ended = 0, self.own[:0]
        for side in self.sides.values():
            side.withheld.clear()
            side.takes = False
            side.written = max(side.written, count)
        return max(before, count)

    def fill(
        self, slot: int, table: list[TensorPlace], tensors: Leaves, sides: Iterable[int], withheld: Collection[str]
    ) -> None:
        """Writes one iteration into the input arenas.

        table: where the tensors lie in a slot, in their order. withheld: names of tensors that a side gets at its GO.
        """
        self.tables[slot] = table
        base = slot * self.in_bytes
        own = self.inputs_of(slot)
        for name, tensor in tensors.items():
            own[name].copy_(tensor)
        early = [place for place in table if place.name not in withheld]
        late = []
        for place in table:
            if place.name in withheld:
                start, tensor = base + place.offset, tensors[place.name]
                late.append((start, start + tensor.numel() * tensor.element_size()))
        for number in sides:
            side = self.sides[number]
            side.withheld[slot] = late
            if not side.shared:
                theirs = slots.read_inputs(side.inputs, base, early)
                for place in early:
                    theirs[place.name].copy_(tensors[place.name])

    def take(self, number: int, first: int, count: int) -> None:
        """Copies outputs of a side that are due now and compared later, when the kernel has run again."""
        self.note_ended(number)
        side = self.sides[number]
        if side.taken is None:
            side.taken = torch.empty_like(side.outputs)
        some = slice(first * self.out_bytes, (first + count) * self.out_bytes)
        side.taken[some] = side.outputs[some]
        side.takes = True
        at_end, self.at_end = self.at_end, None
        if at_end is not None and at_end[:2] == (number, first):
            now = side.taken[some].view(count, -1)[-len(at_end[3]) :, at_end[2]]
            if not torch.equal(now.cpu(), at_end[3]):
                self.late.add(number)

    def note_ended(self, number: int, first: int = 0, count: int = 0) -> None:
        """Notes the outputs in these slots at a stop. A kernel is late if those of the last stop have changed since."""
        outputs, (place, before) = self.sides[number].outputs, self.ended
        self.ended = first * self.out_bytes, outputs[first * self.out_bytes : (first + count) * self.out_bytes].clone()
        if not torch.equal(before, outputs[place : place + len(before)]):
            self.late.add(number)

    def reader(self, number: int, first: int, count: int) -> Callable[[], None]:
        """A function that reads READ_BYTES of each output in these slots, at an offset that is drawn here.

        `take` compares them with what is there when it copies the outputs.
        """
        outputs = self.sides[number].outputs[first * self.out_bytes : (first + count) * self.out_bytes]
        width = min(READ_BYTES, self.filled)
        start = slots.header_bytes(self.room) + random.SystemRandom().randrange(self.filled - width + 1) // 16 * 16
        some = slice(start, start + width)
        read = self.device.reader(outputs.view(count, -1)[:, some])

        def keep() -> None:
            self.at_end = (number, first, some, read())

        return keep

    def touched(self, sides: Iterable[int], count: int | None = None) -> list[int]:
        """The sides of these that are late, or whose first `count` slots no longer hold only poison. None: all slots."""
        end = None if count is None else count * self.out_bytes
        return [n for n in sides if n in self.late or not slots.is_poisoned(self.sides[n].outputs[:end])]

    def any_written(self, number: int, first: int, count: int) -> bool:
        """Whether a result overwrote the poison in one of these slots of a side."""
        outputs = self.sides[number].outputs[first * self.out_bytes : (first + count) * self.out_bytes]
        return any(slots.overwritten(outputs, self.out_bytes, slots.header_bytes(self.room)))

    def inputs_of(self, slot: int) -> Leaves:
        """The iteration in a slot, in this rank's own inputs."""
        return slots.read_inputs(self.own, slot * self.in_bytes, self.tables[slot])

    def slot_of(self, outputs: torch.Tensor, slot: int) -> torch.Tensor:
        return outputs[slot * self.out_bytes : (slot + 1) * self.out_bytes]
