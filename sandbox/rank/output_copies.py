"""Copies the outputs of a timed batch to their slots, deferred if possible.

Launching a copy among real calls costs the host 12 to 37 us on an H200, and 7 to 12 us in a loop of copies. Copying each
output before the next call would be a third of a short call, and cannot be subtracted exactly. So results are held and copied
many at a time if every call returns new memory. The output of a kernel that reuses memory is copied before its next call. A
kernel may choose its memory by its inputs, so its first reuse can be of a result that is held. Then outputs of the batch are
lost, and timing starts again. Some results, chosen at random, are never held: if a later call completes one, its copy is
wrong.
"""

import random
from collections.abc import Sequence
from typing import Any

import torch

from sandbox.machine.devices.kind import HELD
from sandbox.memory.slots import Slot, copy_all
from sandbox.protocol.frames import LOST, REUSES

HELD_BYTES = 1 << 30
AT_ONCE = 16
"""On average, one result in this many is copied at once."""
_draws = random.Random()  # a kernel may seed the module's own numbers


class OutputCopies:
    """The output copies of one kernel on one rank. Used while the clock runs."""

    def __init__(self, holds: bool) -> None:
        """holds: whether results may be held."""
        self.holds = holds
        self.reuses = False
        """Whether the kernel returned the memory of an earlier result that was kept alive."""
        self.lost = False
        """Whether it returned the memory of a result in this batch that was held and not copied yet."""
        self.watched = 0
        """Calls of the longest batch that was checked for reused memory."""
        self._warm = self._noop = False
        self._watching = False
        self._defers = False
        self._at_once: frozenset[int] = frozenset()
        self._number = self._calls = 0
        self._held: list[list[torch.Tensor]] = []
        """Tensors to be copied, by output."""
        self._targets: list[list[torch.Tensor]] = []
        self._between: list[list[torch.Tensor]] = []
        """Results that were copied at once while others were held. They are kept alive like these."""
        self._since = 0
        """Calls since the oldest held result, including its own call and those whose results were copied at once."""
        self._bytes = 0
        """Bytes of the results of these calls."""
        self._alive: list[list[torch.Tensor]] = []
        """Copied results that are kept alive, so that only the kernel itself can return their memory again."""

    def warm_up(self, slot: Slot, result: Any) -> None:
        """Runs the copy code of `finish` once, before timing.

        Code is loaded at its first call, which would block behind a closed gate.
        """
        if self._warm or not self.holds:
            return
        self._warm = True
        for tensor in slot.tensors_of(result) or ():
            copy_all([torch.empty_like(tensor), torch.empty_like(tensor)], [tensor, tensor])

    def start(self, calls: int, noop: bool) -> None:
        """Prepares a batch before its GO. noop: the batch returns one stored result. A prepared batch need not run."""
        self.forget()
        self.lost = False
        self._noop = noop
        self._number = 0
        self._calls = min(calls, HELD)
        self._watching = self.holds and not noop and not self.reuses and self._calls > self.watched
        self._defers = self.holds and not self.reuses and not self._watching
        some = range(calls) if self._defers else ()
        self._at_once = frozenset(n for n in some if _draws.randrange(AT_ONCE) == 0)

    def put(self, slot: Slot, result: Any) -> None:
        """Takes the result of a call. It reaches its slot at the latest in `finish`.

        Raises:
            NotATree, DoesNotFit: the result does not fit a slot.
        """
        if not self._defers:
            slot.put(result)
            if self._watching:
                self._watch(slot, result)
            return
        number, self._number = self._number, self._number + 1
        tensors = slot.tensors_of(result) or []
        fits = tensors and (not self._held or len(tensors) == len(self._held))
        at_once = not fits or number in self._at_once
        if at_once:
            slot.put(result)
            if not self._held:
                return
            # After `put`, the slot has the layout of the result.
            self._between.append(tensors or slot.tensors_of(result) or [])
        elif not self._held:
            self._held, self._targets = [[] for _ in tensors], [[] for _ in tensors]
        # Never more calls than were watched for reuse, because a kernel may use a few buffers in turn.
        self._since += 1
        self._bytes += sum(target.nbytes for target in slot.targets)
        if not at_once:
            for held, targets, tensor, target in zip(self._held, self._targets, tensors, slot.targets, strict=True):
                held.append(tensor)
                targets.append(target)
        if self._bytes >= HELD_BYTES or self._since >= HELD:
            self.finish()

    def finish(self) -> None:
        """Copies and releases the held results. Called at the end of a batch, before the device is synchronized."""
        if self._held and not self._noop:  # a quick check: whether tensors of two results start at the same address
            results = [*zip(*self._held, strict=True), *self._between]
            each = [{tensor.data_ptr() for tensor in result if tensor.numel()} for result in results]
            if len(set().union(*each)) < sum(map(len, each)):
                self.reuses = self.lost = True
        for held, targets in zip(self._held, self._targets, strict=True):
            copy_all(targets, held)
        if self._watching:
            self.watched = self._calls
            self.reuses |= share_memory(self._alive)
        self.forget()

    @property
    def report(self) -> int:
        """The value of the batch's DONE."""
        return LOST if self.lost else REUSES if self.reuses else 0

    def forget(self) -> None:
        """Releases all results, also after a failed batch."""
        self._held, self._targets, self._since, self._bytes = [], [], 0, 0
        self._alive, self._between = [], []

    def _watch(self, slot: Slot, result: Any) -> None:
        """Keeps a copied result alive."""
        if len(self._alive) < HELD and self._bytes < HELD_BYTES:
            tensors = slot.tensors_of(result) or []
            self._alive.append(tensors)
            self._bytes += sum(tensor.nbytes for tensor in tensors)


def share_memory(results: Sequence[Sequence[torch.Tensor]]) -> bool:
    """Whether tensors of two results overlap. A tensor spans all memory from its first to its last element."""
    spans = sorted((*_span(tensor), n) for n, result in enumerate(results) for tensor in result if tensor.numel())
    reach, owner = 0, -1
    for start, end, number in spans:
        if start < reach and number != owner:
            return True
        if end > reach:
            reach, owner = end, number
    return False


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """The addresses of a tensor's first byte and of the byte after its last."""
    places = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + places * tensor.element_size()
