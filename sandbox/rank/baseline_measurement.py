"""Measures iterations of the baseline on one rank: sizes of slots, the time of a call, and peaks of memory."""

import contextlib
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
from sandbox.rank.memory_room import HELD, arenas_bytes, comparing_bytes, most_references
from sandbox.rank.outputs.comparison import Comparison, Expected
from sandbox.rank.problem_code import Leaves, ProblemCode

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
        in_bytes = max(self.in_sizes) if _alike(self.in_sizes) else 2 * max(self.in_sizes) + memory.PAGE
        out_bytes = self.code.capacity(self.setting)
        if not out_bytes:
            out_bytes = max(self.out_sizes) if _alike(self.out_sizes) else 2 * max(self.out_sizes)
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
        taken = arenas_bytes(arena_bytes, in_bytes, out_bytes) + HELD * (in_bytes + out_bytes)
        other = max(*self.draw_peaks, comparing_bytes(out_bytes, compared_bytes))
        return most_references(there, taken, max(self.call_peaks), max(self.oracle_peaks), other)


def _alike(sizes: list[int]) -> bool:
    return len(set(sizes)) == 1
