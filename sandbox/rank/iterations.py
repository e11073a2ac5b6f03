"""The iterations of a batch: arguments in the input arena, and output slots.

All of it runs before timing. The state belongs to one mapping of arenas.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from problems.setting import RankSetting
from sandbox.memory import slots
from sandbox.memory.host import TensorPlace
from sandbox.memory.trees import Output, flatten
from sandbox.protocol.messages import SlotLayout, SlotTable
from sandbox.rank.problem_code import Leaves, ProblemCode, with_mutated

LARGE = 1 << 30
"""Larger inputs of an iteration are not copied for untimed calls."""


class Iteration(NamedTuple):
    """One call: its arguments and output slot."""

    arguments: tuple[Any, ...]
    given: Leaves
    """The tensors among the arguments. Inputs that must not be written are other tensors on the same memory."""
    drawn: Leaves
    """The same tensors as they were drawn, in the input arena."""
    slot: slots.Slot


class Iterations:
    """The armed iterations, and cached ones."""

    def __init__(
        self, code: ProblemCode, setting: RankSetting, layout: SlotLayout, inputs: torch.Tensor, outputs: torch.Tensor
    ) -> None:
        """inputs, outputs: the arenas, flat uint8 [slots * bytes of a slot]."""
        self.code = code
        self.setting = setting
        self.mutates = code.problem.mutates
        self.inputs = inputs
        self.outputs = outputs
        self.in_bytes, self.out_bytes = layout.in_bytes, layout.out_bytes
        cuts = range(0, layout.slots * self.out_bytes, self.out_bytes)
        self.slots = [slots.Slot(outputs[at : at + self.out_bytes], layout.room) for at in cuts]
        self.armed: list[Iteration] = []
        self.first = 0
        """Slot of the first armed iteration."""
        self.used = 0
        """Slots up to the last armed one."""
        self.practice: Leaves = {}
        self.last: Output | None = None
        """The outputs of the last checked call."""
        self.outline: slots.Outline | None = None
        self._kept: dict[int, tuple[list[TensorPlace], Leaves]] = {}
        """By slot: (places, drawn tensors)."""

    @property
    def used_in(self) -> int:
        """Bytes of the input arena up to the end of the armed iterations."""
        return self.used * self.in_bytes

    @property
    def used_out(self) -> int:
        """Bytes of the output arena up to the end of the armed iterations."""
        return self.used * self.out_bytes

    def measure(self, tables: list[SlotTable]) -> None:
        """Stores the extent of the tables. Call it before `arm`; unsealed inputs are copied in between."""
        self.armed = []
        self.first = tables[0].index if tables else 0
        self.used = 1 + max((table.index for table in tables), default=-1)

    def arm(self, tables: list[SlotTable], checking: bool) -> None:
        """Assembles the iterations of the tables."""
        self.armed = [self._assemble(table, checking) for table in tables]
        if self.armed and not self.practice:
            # A contender world needs complete inputs: those of the check. In a world without a kernel any will do.
            first = self.armed[0]
            found = first.given if checking else first.drawn
            large = self.in_bytes >= LARGE
            self.practice = found if large else {name: t.clone() for name, t in found.items()}

    def _assemble(self, table: SlotTable, checking: bool) -> Iteration:
        """One iteration, whose arguments are new objects on the same memory as before.

        A kernel may change an argument without writing to its elements: requires_grad_, unsqueeze_, a list's pop. A call of a
        later batch must not find such a change.
        """
        drawn = self._drawn(table)
        memory = {name: tensor.clone() for name, tensor in drawn.items()} if checking else drawn
        given = fresh(memory)
        arguments = self.code.arguments(given, self.setting)
        given = {name: given[name] if name in self.mutates else memory[name] for name in given}
        return Iteration(arguments, given, drawn, self.slots[table.index])

    def _drawn(self, table: SlotTable) -> Leaves:
        """The inputs in a slot, which a timed call gets. Those of the same shapes lie at the same places.

        Where solutions change them in place, they are writable: a kernel could skip a copy of them that is made here.
        """
        places, drawn = self._kept.get(table.index, ([], {}))
        if places != table.tensors or not places:
            drawn = slots.read_inputs(self.inputs, table.index * self.in_bytes, table.tensors)
            self._kept[table.index] = (table.tensors, drawn)
        return drawn

    def lay_out(self, solution: Callable[..., Any]) -> None:
        """Prepares the armed slots for outputs like the last ones, so that the timed window copies only tensors.

        solution: called once if there has been no output yet.
        """
        first, count = self.first, len(self.armed)
        if self.outline is None:
            result, given = self.rehearse(solution)
            self.expect(*flatten(with_mutated(result, given, self.code.problem.written)), self.slots[first].room)
        assert self.outline is not None
        for slot in self.slots[first : first + count]:
            if slot.outline is not self.outline:
                slot.lay_out(self.outline)
        slots.write_headers(self.outputs, self.out_bytes, first, count, self.outline)

    def expect(self, structure: str, leaves: list[tuple[str, torch.Tensor]], room: int) -> None:
        """Prepares for outputs like this one. Raises DoesNotFit."""
        self.outline = slots.Outline(structure, leaves, room, self.out_bytes)

    def rehearse(self, solution: Callable[..., Any]) -> tuple[Any, Leaves]:
        """Makes one call on stored inputs; returns its result and its arguments."""
        given = {name: t.clone() if name in self.mutates else t.detach() for name, t in self.practice.items()}
        return solution(*self.code.arguments(given, self.setting)), given


def fresh(tensors: Leaves) -> Leaves:
    """New tensors on the same memory, without a kernel's changes of the old ones: shape, strides, gradients."""
    return {name: _apart(tensor) for name, tensor in tensors.items()}


def _apart(tensor: torch.Tensor) -> torch.Tensor:
    """A new tensor on the same memory. In host memory it has a storage of its own, which ends where the tensor does.

    A kernel may move the storage of an input (share_memory_), and pickling a tensor writes its whole storage. Neither may
    concern the arena. tensor: contiguous.
    """
    if tensor.is_cuda or not tensor.numel():
        return tensor.detach()
    dtype, memory = tensor.dtype, tensor.view(-1).view(torch.uint8).numpy()
    return torch.frombuffer(memory, dtype=dtype).view(tensor.shape)
