"""One plain rank, without jail, pinning or referee.

    python -m benchmarks.plain_loop.rank RANK WORLD DEVICE FOLDER

It times a loop over a problem's baseline as a user's script does, or calls a block of the kit very often. Orders come
on stdin and replies go to stdout (benchmarks/plain_loop/messages.py). Between two orders the rank is blocked in a read.
Unlike in a script, torch's flags for TF32 are the arena's, so that both compute the same.
"""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.kit_soak import block_named
from benchmarks.plain_loop import messages
from problems.setting import RankSetting
from problems.specification import load_problem
from sandbox.machine.devices import kind_of
from sandbox.machine.processes import die_with_parent
from sandbox.rank.devices.device import Device
from sandbox.rank.problem_code import Leaves, ProblemCode, leave_groups

_cuda: Any = torch.cuda  # events and _sleep carry no types
CYCLES = 20_000_000
"""Cycles of torch.cuda._sleep that measure the length of a cycle: about 10 ms."""


class CudaEventTimer:
    """A timer of one rank."""

    def __init__(self) -> None:
        self._first, self._last = (_cuda.Event(enable_timing=True) for _ in range(2))
        self._cycles_per_us = self._measure_cycles()

    def _measure_cycles(self) -> float:
        """Cycles of torch.cuda._sleep per microsecond, on a busy GPU."""
        _cuda._sleep(CYCLES)  # raises the GPU's clocks
        self.start()
        _cuda._sleep(CYCLES)
        self._last.record()
        self._last.synchronize()
        return CYCLES / self.us()

    def hold(self, us: float) -> None:
        """Delays work that is queued from now on by `us`."""
        _cuda._sleep(int(us * self._cycles_per_us))

    def start(self) -> None:
        """Marks the start; call it right before the timed work is queued."""
        self._first.record()

    def stop(self) -> bool:
        """Marks the end; returns whether all timed work was queued before it began."""
        self._last.record()
        return not self._first.query()

    def us(self) -> float:
        """Microseconds from start to stop. Waits for the device."""
        microseconds: float = self._first.elapsed_time(self._last) * 1e3
        return microseconds


class PlainLoop:
    """A problem's baseline and inputs on one rank."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.token = torch.zeros(1, device=device.torch_device)
        self.solution: Callable[..., Any] | None = None
        self.arguments: list[tuple[Any, ...]] = []
        self.written: list[tuple[torch.Tensor, torch.Tensor]] = []
        """(tensor that a call may write to, its values as drawn)."""
        self.setting: RankSetting | None = None
        self.timer: CudaEventTimer | None = None
        """The timer of queued calls, once it is needed."""
        self.handlers: dict[type[messages.LoopOrder], Callable[[Any], messages.LoopReply]] = {
            messages.DrawInputs: self.open,
            messages.TimeCalls: self.time_calls,
            messages.TimeQueued: self.time_queued,
            messages.SoakBlock: soak_block,
        }

    def answer(self, order: messages.LoopOrder) -> messages.LoopReply:
        """Carries out an order (collective)."""
        return self.handlers[type(order)](order)

    def open(self, order: messages.DrawInputs) -> messages.InputsDrawn:
        """Releases the previous problem and draws inputs, as many sets as fit on every rank."""
        self.close()
        setting = order.setting
        code = ProblemCode(load_problem(Path(setting.problem_dir)))
        self.setting = code.setting(setting.sizes, setting.preset, setting.dtype, self.device.torch_device)
        drawn = [code.draw(self.setting, order.seeds[0])]
        size = sum(tensor.nbytes for tensor in drawn[0].values())
        fitting = torch.tensor([max(1, order.most_bytes // max(size, 1))], device=self.device.torch_device)
        dist.all_reduce(fitting, op=dist.ReduceOp.MIN)
        drawn += [code.draw(self.setting, seed) for seed in order.seeds[1 : int(fitting.item())]]
        for leaves in drawn:
            self.arguments.append(code.arguments(self._guarded(leaves, code.problem.mutates), self.setting))
        self.solution = code.baseline
        self.device.synchronize()
        return messages.InputsDrawn(inputs=len(self.arguments))

    def _guarded(self, leaves: Leaves, mutates: list[str]) -> Leaves:
        """Stores the values of inputs that a call writes to."""
        self.written += [(leaves[name], leaves[name].clone()) for name in mutates]
        return leaves

    def close(self) -> None:
        """Releases the problem: its inputs, and its process groups except the world."""
        self.arguments, self.written, self.solution = [], [], None
        leave_groups()
        self.setting = None
        self.device.free_cache()

    def restore(self) -> None:
        """Restores the values of written inputs, untimed."""
        for tensor, drawn in self.written:
            tensor.copy_(drawn)

    def call(self, count: int) -> None:
        """Makes calls one after another, with each set of inputs in turn."""
        assert self.solution is not None
        solution, arguments = self.solution, self.arguments
        many = len(arguments)
        for number in range(count):
            solution(*arguments[number % many])

    def get_ready(self, warm: int) -> None:
        """Makes untimed calls, then waits until all ranks have finished."""
        self.call(warm)
        self.restore()
        self.device.synchronize()
        dist.barrier()
        self.device.synchronize()

    def time_calls(self, order: messages.TimeCalls) -> messages.Times:
        """Measures wall time."""
        times = []
        for _ in range(order.repetitions):
            self.get_ready(order.warm)
            started = time.perf_counter_ns()
            self.call(order.calls)
            self.device.synchronize()
            times.append((time.perf_counter_ns() - started) / 1e3 / order.calls)
        return messages.Times(us=times)

    def time_queued(self, order: messages.TimeQueued) -> messages.Times:
        """Measures device time. A collective right before the first event lets all ranks begin together."""
        if not torch.cuda.is_available():
            raise RuntimeError("CPU ranks queue nothing")
        self.timer = timer = self.timer or CudaEventTimer()
        times, queued = [], True
        for _ in range(order.repetitions):
            self.get_ready(0)
            timer.hold(order.wait_us)
            dist.all_reduce(self.token)
            timer.start()
            self.call(order.calls)
            queued &= timer.stop()
            self.device.synchronize()
            times.append(timer.us() / order.calls)
        return messages.Times(us=times, queued=queued)


def soak_block(order: messages.SoakBlock) -> messages.Soaked:
    """Calls a block of the kit (collective)."""
    from benchmarks.kit_soak.soak import soak  # a plain loop does not need the kit

    return messages.Soaked(*soak(block_named(order.block), order.first, order.calls, order.seed))


def main() -> None:
    """Joins the process group, then carries out orders until stdin is closed."""
    rank, world, device_name, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl+c is for the measurement, which ends its ranks
    replies = os.dup(1)
    os.dup2(2, 1)  # a baseline's prints are no replies
    torch.set_num_threads(1)  # as torchrun does if it starts several ranks
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}

    def say(reply: messages.LoopReply) -> None:
        with open(replies, "wb", closefd=False) as stream:
            stream.write(messages.encode(reply) + b"\n")

    try:
        device: Device = import_module(kind_of(device_name).rank_module).device(rank)
        device.join(rank, world, folder)
        loop = PlainLoop(device)
        say(messages.Joined())
        for line in sys.stdin.buffer:
            say(loop.answer(messages.decode_order(line)))
    except BaseException:
        say(messages.Broken(text=traceback.format_exc()[-4000:]))
    sys.stdout.flush()
    os._exit(0)  # does not wait for a broken process group


if __name__ == "__main__":
    main()
