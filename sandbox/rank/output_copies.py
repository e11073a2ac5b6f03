"""The outputs of a timed batch on their way to their slots.

A launch among real calls takes the host two to four times what it takes in a loop of its own: on an H200 13 to 30 us for one
copy, in a loop 7. Copying each output before the next call would be a third of a short call's time, and cannot be taken off
exactly. Where every call returns memory of its own, results are therefore held and copied many at a time. A kernel that returns
the same memory again has each output copied before its next call. So have some calls of each batch, drawn at random: a result
that is completed by a later call is wrong there.
"""

import random
from collections.abc import Sequence
from typing import Any

import torch

from sandbox.memory.slots import Slot, copy_all

HELD = 64
"""Results that are held at the most."""
HELD_BYTES = 1 << 30
AT_ONCE = 16
"""One call in so many is copied at once, on average."""


class OutputCopies:
    """Of one kernel on one rank. Used on the clock."""

    def __init__(self, holds: bool) -> None:
        """holds: whether results may be held at all."""
        self.holds = holds
        self.reuses = False
        """Whether the kernel returned memory in which an earlier result lay that was held."""
        self.watched = 0
        """Calls of the longest batch in which every output was copied at once, and held to see whether it comes again."""
        self._warm = False
        self._noop = False
        self._watching = False
        self._defers = False
        self._at_once: frozenset[int] = frozenset()
        self._number = self._calls = 0
        self._held: list[list[torch.Tensor]] = []
        """By output, the tensors that have still to be copied."""
        self._targets: list[list[torch.Tensor]] = []
        self._bytes = 0
        self._alive: list[list[torch.Tensor]] = []
        """Results that are copied and not let go, so that their memory comes again only if the kernel itself returns it again."""

    def warm_up(self, slot: Slot, result: Any) -> None:
        """Copies a result as `finish` does, to nowhere, once. Off the clock.

        Code is loaded when it is first called, and behind a closed gate that would wait for the gate.
        """
        if self._warm or not self.holds:
            return
        self._warm = True
        for tensor in slot.tensors_of(result) or ():
            copy_all([torch.empty_like(tensor), torch.empty_like(tensor)], [tensor, tensor])

    def start(self, calls: int, noop: bool) -> None:
        """Prepares for a batch, before its GO. noop: one result is returned again and again, to see what the harness takes.

        A batch may be prepared and not run: the world then made untimed calls alone.
        """
        self.forget()
        self._noop, self._number = noop, 0
        self._calls = min(calls, HELD)
        self._watching = self.holds and not noop and not self.reuses and self._calls > self.watched
        self._defers = self.holds and not self.reuses and not self._watching
        some = range(calls) if self._defers else ()
        self._at_once = frozenset(n for n in some if random.randrange(AT_ONCE) == 0)

    def put(self, slot: Slot, result: Any) -> None:
        """Takes the result of a call, which is in its slot after `finish`.

        Raises:
            NotATree, DoesNotFit: no slot can hold it.
        """
        if not self._defers:
            slot.put(result)
            if self._watching:
                self._watch(slot, result)
            return
        number, self._number = self._number, self._number + 1
        tensors = slot.tensors_of(result)
        if not tensors or number in self._at_once:
            slot.put(result)
            return
        if not self._held:
            self._held, self._targets = [[] for _ in tensors], [[] for _ in tensors]
        for held, targets, tensor, target in zip(
            self._held, self._targets, tensors, slot.targets, strict=True
        ):
            held.append(tensor)
            targets.append(target)
            self._bytes += target.nbytes
        if self._bytes >= HELD_BYTES or len(self._held[0]) >= HELD:
            self.finish()

    def finish(self) -> None:
        """Copies what is held, and lets it go. Ends a batch, before the device is synchronized."""
        for held, targets in zip(self._held, self._targets, strict=True):
            copy_all(targets, held)
        if self._watching:
            self.watched = self._calls
            self.reuses |= share_memory(self._alive)
        self.forget()

    def forget(self) -> None:
        """Lets go of all results, also after a batch that failed."""
        self._held, self._targets, self._bytes = [], [], 0
        self._alive = []

    def _watch(self, slot: Slot, result: Any) -> None:
        """Holds a result that was copied."""
        if len(self._alive) < HELD and self._bytes < HELD_BYTES:
            tensors = slot.tensors_of(result) or []
            self._alive.append(tensors)
            self._bytes += sum(tensor.nbytes for tensor in tensors)


def share_memory(results: Sequence[Sequence[torch.Tensor]]) -> bool:
    """Whether the tensors of one result reach into those of another. Between its first and its last element all of a tensor's
    memory counts."""
    spans = sorted(
        (*_span(tensor), n) for n, result in enumerate(results) for tensor in result if tensor.numel()
    )
    reach, owner = 0, -1
    for start, end, number in spans:
        if start < reach and number != owner:
            return True
        if end > reach:
            reach, owner = end, number
    return False


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """The addresses of a tensor's first byte and of the one after its last."""
    places = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + places * tensor.element_size()
