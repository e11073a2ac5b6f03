"""A rank of either world: maps its arenas, loads a solution, runs batches when told. Imports torch.

The code here is convenience, not trust: a kernel shares this process and can change anything in it. What it cannot reach is
the clock, the seeds, the oracle and the verdict, which live in other processes.
"""

import faulthandler
import gc
import os
import signal
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from problems.setting import Setting
from problems.specification import load_problem
from sandbox import frames, memory, slots
from sandbox.devices import Device, gate_page
from sandbox.frames import Kind
from sandbox.kernel_module import KernelRefused, load_solution
from sandbox.kernel_traceback import describe, kernel_line
from sandbox.kit import compiling
from sandbox.kit.errors import BarrierTimeout, CompileError
from sandbox.problem_code import Leaves, ProblemCode, with_mutated
from sandbox.trees import NotATree, flatten

TEXT_LIMIT = 60_000
Iteration = tuple[tuple[Any, ...], Leaves, slots.Slot]


class Reported(Exception):
    """A failure that was sent to the referee already."""


class Rank:
    """Serves one rank's control socket."""

    def __init__(
        self, rank: int, world: int, sock: socket.socket, report: int, folder: Path, device: Device
    ) -> None:
        """report: descriptor of the page for failure texts; folder: a private directory of this rank."""
        self.device = device
        self.rank = rank
        self.world = world
        self.sock = sock
        self.folder = folder
        self.report = memory.map_output(report)
        self.code: ProblemCode | None = None
        self.setting: Setting | None = None
        self.solution: Callable[..., Any] | None = None
        self.kernel_path = ""
        self.inputs = torch.empty(0, dtype=torch.uint8)
        self.outputs = torch.empty(0, dtype=torch.uint8)
        self.slots: list[slots.Slot] = []
        self.slot_bytes = self.out_bytes = 0
        self.used = 0
        """Slots of the batch in progress."""
        self.iterations: list[Iteration] = []
        self.originals: list[Leaves] = []
        self.checking = False
        self.practice: Leaves = {}
        self.results: list[Any] = []
        self.spark = torch.zeros(1, device=device.torch_device)
        self.gate: Any = None
        self.epoch = 0
        self.last: tuple[str, list[tuple[str, torch.Tensor]]] | None = None
        compiling.on_compile_start = lambda: self.say(Kind.COMPILING)
        compiling.on_compile_end = lambda: self.say(Kind.COMPILED)
        self.handlers: dict[int, Callable[[Any, list[int]], None]] = {
            Kind.OPEN: self.open,
            Kind.ARENAS: self.arenas,
            Kind.LOAD: self.load,
            Kind.ARM: self.arm,
            Kind.GO: self.go,
            Kind.RECOPY: self.recopy,
            Kind.GATE: self.map_gate,
            Kind.WAKE: self.wake,
            Kind.FINISH: self.finish,
        }

    def serve(self) -> None:
        """Answers the referee until it hangs up."""
        self.say(Kind.READY, os.getpid())
        while True:
            try:
                frame, payload, fds = frames.receive(self.sock)
            except (EOFError, ConnectionError):
                os._exit(0)
            try:
                self.handlers[frame.kind](payload, fds)
            except Reported:
                pass
            except BaseException as error:
                self.blame(error)

    def say(self, kind: int, value: int = 0) -> None:
        """Sends a bare frame."""
        self.sock.sendall(frames.encode(kind, 0, value))

    def fail(self, kind: int, text: str, line: int = 0) -> None:
        """Leaves a text in the report page and says what kind of failure it is."""
        data = text.encode("utf-8", "replace")[:TEXT_LIMIT]
        self.report[4 : 4 + len(data)] = data
        self.report[:4] = struct.pack("<I", len(data))
        self.say(kind, line)

    def blame(self, error: BaseException) -> None:
        """An exception out of the kernel's code, with the kernel's own line."""
        kind: int = Kind.RAISED
        if (
            isinstance(error, MemoryError)
            or "out of memory" in str(error).lower()
            or "can't allocate memory" in str(error).lower()
        ):
            kind = Kind.NO_MEMORY
        elif isinstance(error, CompileError):
            kind = Kind.COMPILE_FAILED
        elif isinstance(error, BarrierTimeout):
            kind = Kind.STALLED
        elif isinstance(error, torch.AcceleratorError) if hasattr(torch, "AcceleratorError") else False:
            kind = Kind.DEVICE
        elif self.solution is None:
            kind = Kind.LOAD_FAILED
        line = getattr(error, "line", None) or kernel_line(error, self.kernel_path)
        self.fail(kind, describe(error, self.kernel_path), int(line or 0))

    # --- before the kernel ---------------------------------------------------------------------------------

    def open(self, payload: Any, fds: list[int]) -> None:
        """Opens a problem with a setting (collective)."""
        self.iterations, self.originals, self.results, self.slots, self.last = [], [], [], [], None
        self.code = self.setting = self.solution = None
        self.practice = {}
        self.device.free_cache()
        self.code = ProblemCode(load_problem(Path(payload["folder"])))
        dtype = getattr(torch, payload["dtype"])
        self.setting = self.code.setting(payload["sizes"], payload["preset"], dtype, self.device.torch_device)
        self.say(Kind.OPENED)

    def arenas(self, payload: Any, fds: list[int]) -> None:
        """Maps the sealed inputs and the outputs."""
        inputs, outputs = fds
        self.iterations, self.originals, self.results, self.slots, self.last = [], [], [], [], None
        self.practice = {}
        self.device.release(self.inputs)
        self.device.release(self.outputs)
        self.device.sealed = payload["sealed"]
        self.inputs = self.device.map_input(inputs, payload["in_bytes"] * payload["slots"])
        self.outputs = self.device.map_output(outputs, payload["out_bytes"] * payload["slots"])
        self.map_slots(self.outputs, payload)
        os.close(inputs)
        os.close(outputs)
        self.say(Kind.MAPPED)

    def map_slots(self, outputs: torch.Tensor, payload: Any) -> None:
        """Cuts the output arena into slots."""
        self.slot_bytes = payload["in_bytes"]
        self.out_bytes = size = payload["out_bytes"]
        self.slots = [
            slots.Slot(outputs[i * size : (i + 1) * size], payload["room"]) for i in range(payload["slots"])
        ]

    def map_gate(self, payload: Any, fds: list[int]) -> None:
        """Maps the starting gate's page (GPU ranks)."""
        from sandbox.gpu_gate import RankGate

        self.gate = RankGate(gate_page(fds[0]), self.rank)
        self.say(Kind.GATED)

    def load(self, payload: Any, fds: list[int]) -> None:
        """Imports a kernel's text as a module of its own and finds solution."""
        assert self.code is not None
        self.kernel_path = str(self.folder / Path(payload["name"]).name)
        self.solution = None
        try:
            self.solution = load_solution(payload["source"], self.kernel_path, self.code.problem.parameters)
        except KernelRefused as refused:
            self.fail(refused.kind, str(refused), refused.line)
            return
        self.say(Kind.LOADED)

    # --- batches -------------------------------------------------------------------------------------------

    def arm(self, payload: Any, fds: list[int]) -> None:
        """Assembles the arguments of every iteration of the next batch, off the clock."""
        assert self.code is not None
        assert self.setting is not None
        mutates = self.code.problem.mutates
        if payload["slots"] and not self.practice:
            # Complete inputs: the check's in a contender world, anything in the baseline's own arena.
            index, table = payload["slots"][0]
            whole = slots.read_inputs(self.inputs, index * self.slot_bytes, table)
            self.practice = {name: tensor.clone() for name, tensor in whole.items()}
        self.checking = payload["checking"]
        self.epoch = payload.get("epoch", 0)
        self.iterations, self.originals, self.results = [], [], []
        self.used = 1 + max((index for index, _ in payload["slots"]), default=-1)
        if not self.device.sealed:
            self.device.receive(self.used * self.slot_bytes)  # integers are there, and shape the arguments
            self.outputs.fill_(slots.POISON)
        for index, table in payload["slots"]:
            given = slots.read_inputs(self.inputs, index * self.slot_bytes, table)
            original = given
            if self.checking:
                given = {name: tensor.clone() for name, tensor in given.items()}
            elif mutates:
                # Filled on the clock: nothing that counts is complete before GO.
                given = {name: torch.empty_like(t) if name in mutates else t for name, t in given.items()}
            slot = self.slots[index]
            if self.last is not None:
                try:
                    slot.ready(*self.last)
                except slots.DoesNotFit:
                    self.last = None
            self.iterations.append((self.code.arguments(given, self.setting), given, slot))
            self.originals.append(original)
        if self.iterations and not self.checking and self.solution is not None:
            self.rehearse()
        gc.collect(0)
        self.device.synchronize()
        self.say(Kind.ARMED)

    def rehearse(self) -> None:
        """One call off the clock, on kept inputs: both worlds start their batch with warm caches."""
        assert self.code is not None
        assert self.setting is not None
        assert self.solution is not None
        mutates = self.code.problem.mutates
        given = {name: t.clone() if name in mutates else t for name, t in self.practice.items()}
        self.solution(*self.code.arguments(given, self.setting))

    def wake(self, payload: Any, fds: list[int]) -> None:
        """The last thing before GO: this process, and its context on the GPU, is the one that runs."""
        self.device.receive(self.used * self.slot_bytes)
        self.spark.add_(1)
        self.device.synchronize()
        self.say(Kind.AWAKE)

    def go(self, payload: Any, fds: list[int]) -> None:
        """Runs the batch: this is what the referee's clock sees."""
        if self.epoch:
            self.queue_batch()
            return
        if self.checking:
            self.check_batch()
        else:
            if not self.iterations:
                self.spark.add_(1)  # an empty batch, too, takes the GPU's switch to this context
            self.timed_batch()
            self.device.synchronize()
        self.done()

    def queue_batch(self) -> None:
        """Queues the batch behind the closed gate; the referee opens it when every rank has queued, and then says FINISH."""
        self.gate.shut(self.epoch)
        self.timed_batch()
        self.gate.mark(self.epoch)
        self.say(Kind.QUEUED)

    def finish(self, payload: Any, fds: list[int]) -> None:
        """Waits for a queued batch, on all streams."""
        self.device.synchronize()
        self.done()

    def done(self) -> None:
        """Stops the referee's clock; then brings unsealed outputs to where they are compared."""
        self.say(Kind.DONE)
        if not self.device.sealed:
            self.deliver()
            self.say(Kind.DELIVERED)

    def deliver(self) -> None:
        """Unsealed outputs, of the slots that the batch used."""
        self.device.deliver(self.used * self.out_bytes)

    def timed_batch(self) -> None:
        """Calls one after another, each output copied into its slot before the next call."""
        assert self.solution is not None
        assert self.code is not None
        solution, mutates = self.solution, self.code.problem.mutates
        gc.disable()
        try:
            for (arguments, given, slot), original in zip(self.iterations, self.originals, strict=True):
                for name in mutates:
                    given[name].copy_(original[name])
                result = solution(*arguments)
                if mutates:
                    result = with_mutated(result, given, mutates)
                structure, leaves = flatten(result)
                slot.pack(structure, leaves)
        except (NotATree, slots.DoesNotFit) as error:
            self.fail(Kind.BAD_STRUCTURE, str(error))
            raise Reported from None
        finally:
            gc.enable()

    def check_batch(self) -> None:
        """The first iterations, on private copies of the inputs, so that a write to them is found and not a crash."""
        assert self.solution is not None
        assert self.code is not None
        mutates = self.code.problem.mutates
        for arguments, given, slot in self.iterations:
            result = self.solution(*arguments)
            self.results.append(with_mutated(result, given, mutates))
            try:
                structure, leaves = flatten(self.results[-1])
                slot.pack(structure, leaves)
            except (NotATree, slots.DoesNotFit) as error:
                self.fail(Kind.BAD_STRUCTURE, f"solution returned {error}")
                raise Reported from None
            self.last = (structure, leaves)
            if not self.code.problem.check.may_alias:
                self.check_alias(result, given)
        self.device.synchronize()
        for (_, given, _), original in zip(self.iterations, self.originals, strict=True):
            for name, tensor in given.items():
                if name not in mutates and not _same_bits(tensor, original[name]):
                    self.fail(Kind.MUTATED, f"solution wrote to its argument {name}")
                    raise Reported

    def check_alias(self, result: Any, given: Leaves) -> None:
        """The result must not be an argument, or a view of one."""
        spans = [
            (t.data_ptr(), t.data_ptr() + t.numel() * t.element_size(), name) for name, t in given.items()
        ]
        for path, tensor in flatten(result)[1]:
            for low, high, name in spans:
                if tensor.numel() and low <= tensor.data_ptr() < high:
                    self.fail(
                        Kind.BAD_STRUCTURE,
                        f"output {path} shares memory with the argument {name}; return a fresh tensor",
                    )
                    raise Reported

    def recopy(self, payload: Any, fds: list[int]) -> None:
        """Copies the results of the last checked batch again: were they still being written when solution returned?"""
        for result, (_, _, slot) in zip(self.results, self.iterations, strict=True):
            slot.pack(*flatten(result))
        self.device.synchronize()
        self.deliver()
        self.say(Kind.RECOPIED)


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(
        a.contiguous().reshape(-1).view(torch.uint8), b.contiguous().reshape(-1).view(torch.uint8)
    )


def prepare_process() -> None:
    """Signal handlers and threads of a rank process."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
