"""Measures iterations of the baseline on one rank: sizes of slots, the time of a call, and peaks of memory."""

import contextlib
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

from problems.setting import RankSetting, SizesRefused
from sandbox.memory import host as memory
from sandbox.memory import slots
from sandbox.memory.trees import flatten
from sandbox.protocol.messages import BaselineMeasured
from sandbox.rank.devices.device import Device
from sandbox.rank.outputs.comparison import Comparison, Expected
from sandbox.rank.problem_code import Leaves, ProblemCode

HELD = 2
"""Copies of an iteration in addition to the arenas: as drawn, and the private one for a kernel's first calls."""
CONTEXTS_BYTES = 12 << 30
"""Memory for the contexts and libraries of the processes that share a GPU."""
CONTEXT_BYTES, FRAGMENTED = 1 << 29, 1.25
"""What each world takes beyond `CONTEXTS_BYTES`, and the factor by which its allocator takes more memory than its
tensors. In a process on an H100 with 3.1 GiB of tensors, the allocator had 4.2 GiB, and the driver 1.9 GiB."""
HEAP_BYTES = 6 << 30
"""Memory that is reserved for a kernel's symmetric heap, in addition to what the baseline needs."""
COMPARED = 8
"""Most slots that are compared at once."""
GIB = 1 << 30
_LACKS = re.compile(
    r"out of memory|can't allocate memory|Storage size calculation overflowed|Overflow when unpacking long"
)
"""Found in exceptions of torch for tensors that are larger than the memory."""


def lack_of_memory(error: Exception) -> str:
    """The first line of an exception of torch that says that memory does not suffice; empty for others."""
    return str(error).strip().partition("\n")[0] if _LACKS.search(str(error)) else ""


def arenas_bytes(most: int, inputs: int, outputs: int, writable: bool = False) -> int:
    """Bytes of all arenas of a run.

    They are the inputs of the trusted rank and of a kernel, the outputs of the references and of a kernel, and the copy
    of a kernel's outputs. most: limit for the arenas of one side, but at least one slot. inputs, outputs:
    bytes of a slot. writable: the references have inputs of their own, too.
    """
    slots = max(1, most // (inputs + outputs))
    return slots * ((2 + writable) * inputs + 3 * outputs)


def comparing_bytes(outputs: int, at_once: int) -> int:
    """Bytes that a comparison takes: copies of a kernel's outputs, and the expected outputs.

    Those are the baseline's outputs and the oracle's, which are up to four times as large.

    outputs: bytes of a slot. at_once: bytes of outputs that are compared at once.
    """
    copies = COMPARED * outputs
    return copies + 5 * min(copies, max(at_once, outputs))


def most_references(device: int, iterations: int, call: int, oracle: int, other: int = 0) -> int:
    """The number of reference worlds that fit in addition to the oracle world and a kernel.

    The kernel may need as much memory as the baseline, and a heap. The first reference requires no room for the heap.
    device: its memory. iterations: bytes of all their copies. call, oracle: peak bytes of tensors in a call of the baseline and
    of the oracle, without the inputs. other: the peak bytes of the oracle world's other work; it only limits references
    beyond the first.

    Raises:
        SizesRefused: not even one fits; the message has the sizes.
    """
    room = device - iterations - oracle - CONTEXTS_BYTES
    if room < 2 * call:
        needed = device - room + 2 * call
        raise SizesRefused(
            f"iterations take {iterations / GIB:.1f} GiB per rank, the baseline takes {call / GIB:.1f} GiB in each of two worlds"
            f", the oracle {oracle / GIB:.1f} GiB: {needed / GIB:.0f} GiB with the memory of the processes, but this rank's "
            f"device has {device / GIB:.0f} GiB"
        )
    each = int(FRAGMENTED * call) + CONTEXT_BYTES
    return max(1, (room - HEAP_BYTES - max(0, other - oracle)) // each - 1)


PRODUCTS = {
    "linear",
    "matmul",
    "einsum",
    "mm",
    "bmm",
    "addmm",
    "addmm_",
    "baddbmm",
    "baddbmm_",
    "_scaled_mm",
    "_grouped_mm",
}
CONVOLUTIONS = {f"conv{transposed}{n}d" for transposed in ("", "_transpose") for n in (1, 2, 3)}
LOOKED_UP = PRODUCTS | CONVOLUTIONS
"""Functions of torch whose arguments' shapes are recorded."""

Shapes = list[tuple[int, ...]]


class _Recording(TorchFunctionMode):
    """Records the shapes of the arguments of LOOKED_UP. A mode of torch's dispatcher would import torch's compiler."""

    def __init__(self, shapes: Shapes) -> None:
        super().__init__()
        self.shapes = shapes

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if getattr(func, "__name__", "") in LOOKED_UP:
            self.shapes += [tuple(given.shape) for given in args if isinstance(given, torch.Tensor)]
        return func(*args, **(kwargs or {}))


def shapes_of(code: ProblemCode, tensors: Leaves, setting: RankSetting) -> Shapes:
    """Runs the baseline once (collective) and returns the shapes of its matrix products and convolutions, in order."""
    shapes: Shapes = []
    with _Recording(shapes):
        code.call(code.baseline, tensors, setting)
    return shapes


LOOKED_AT = 3
"""Iterations that are compared to detect varying shapes."""


class BaselineMeasurement:
    """What is known of the iterations that `run` has run. Sizes are bytes."""

    def __init__(self, code: ProblemCode, setting: RankSetting, device: Device, comparison: Comparison) -> None:
        self.code = code
        self.setting = setting
        self.device = device
        self.comparison = comparison
        self.in_sizes: list[int] = []
        self.out_sizes: list[int] = []
        self.seconds: list[float] = []
        """Of each call."""
        self.leaves = 0
        """Most tensors that a call has returned."""
        self.shapes: list[Shapes] = []
        self.draw_peaks: list[int] = []
        self.call_peaks: list[int] = []
        self.oracle_peaks: list[int] = []

    def run(self, seed: int) -> Expected:
        """Draws an iteration, runs the baseline and the oracle on it, and returns their outputs (collective)."""
        tensors = self.code.draw(self.setting, seed)
        self.in_sizes.append(slots.lay_out(tensors)[1])
        dist.barrier()
        self.draw_peaks.append(self.device.peak_bytes())
        started = time.perf_counter()
        plain = flatten(self.code.call(self.code.baseline, tensors, self.setting))
        self.device.synchronize()
        self.seconds.append(time.perf_counter() - started)
        self.call_peaks.append(self.device.peak_bytes())
        if len(self.shapes) < LOOKED_AT:
            self.shapes.append(shapes_of(self.code, tensors, self.setting))
        self.leaves = max(self.leaves, len(plain[1]))
        self.out_sizes.append(sum(memory.up(t.numel() * t.element_size()) for _, t in plain[1]))
        expected = self.comparison.expected(tensors, plain)
        self.oracle_peaks.append(self.device.peak_bytes())
        return expected

    def result(self, arena_bytes: Sequence[int], enough: int, compared_bytes: int) -> BaselineMeasured:
        """The reply of this rank.

        arena_bytes: limits for the arenas of one side, the largest first; the first with which `enough` references fit is
        taken, or the last. compared_bytes: bytes of outputs that are compared at once.

        Raises:
            SizesRefused: not even one reference world fits into the device's memory.
        """
        room = max(16, 2 * self.leaves)
        in_bytes = max(self.in_sizes) + (0 if _alike(self.in_sizes) else max(self.in_sizes) + memory.PAGE)
        out_bytes = self.code.capacity(self.setting)
        if not out_bytes:
            out_bytes = max(self.out_sizes) * (1 if _alike(self.out_sizes) else 2)
        # More room than the baseline needs, so that a result of a wrong shape can be shown.
        out_bytes += slots.header_bytes(room) + max(memory.PAGE, min(out_bytes, 1 << 20))
        limit, references = arena_bytes[0], None
        if there := self.device.memory_bytes():
            for limit in arena_bytes:
                may_be_too_large = limit != arena_bytes[-1]
                with contextlib.suppress(SizesRefused) if may_be_too_large else contextlib.nullcontext():
                    references = self.references(there, limit, in_bytes, out_bytes, compared_bytes)
                    if references >= enough:
                        break
        return BaselineMeasured(
            in_bytes=memory.up(in_bytes),
            out_bytes=memory.up(out_bytes),
            room=room,
            seconds=min(self.seconds),
            sealed=self.device.can_seal(),
            varies=any(each != self.shapes[0] for each in self.shapes),
            references=references,
            arena_bytes=limit,
        )

    def references(self, there: int, arena_bytes: int, in_bytes: int, out_bytes: int, compared_bytes: int) -> int:
        """Reference worlds that fit. there: the device's memory. in_bytes, out_bytes: of a slot. Raises as `result`."""
        writable = bool(self.code.problem.mutates)
        taken = arenas_bytes(arena_bytes, in_bytes, out_bytes, writable) + HELD * (in_bytes + out_bytes)
        other = max(*self.draw_peaks, comparing_bytes(out_bytes, compared_bytes))
        return most_references(there, taken, max(self.call_peaks), max(self.oracle_peaks), other)


def _alike(sizes: list[int]) -> bool:
    return len(set(sizes)) == 1
