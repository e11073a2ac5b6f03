"""A rank that runs a kernel or the baseline: maps its arenas, loads a solution and runs batches.

It is untrusted, because a kernel shares this process and can change anything in it. Clock, seeds, oracle and verdict are in other
processes.
"""

import gc
import mmap
import operator
import os
from functools import partial
from pathlib import Path
from typing import Any

import torch

from sandbox.kit.compilers import build, compiling
from sandbox.memory import host as memory
from sandbox.memory import slots
from sandbox.memory.trees import NotATree, flatten
from sandbox.protocol import messages
from sandbox.protocol.frames import Kind
from sandbox.protocol.kernel_files import MAIN
from sandbox.rank import kernel_module
from sandbox.rank.iterations import Iterations
from sandbox.rank.output_copies import OutputCopies
from sandbox.rank.problem_code import with_mutated
from sandbox.rank.rank import Rank, Reported


class ContenderRank(Rank):
    """A rank of a contender world, or of a reference world. It answers with bare frames."""

    iterations: Iterations
    """Those of the mapped arenas; exist while arenas are mapped."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.kernel_path = ""
        self.kernel_folder = ""
        """The folder of a kernel that has several files; else empty."""
        self.inputs = self.outputs = torch.empty(0)
        self.checking = False
        self.results: list[Any] = []
        """Results of the last checked batch."""
        self.gate: Any = None
        self.epoch = 0
        self.batch = slice(0, 0)
        """The armed iterations that the next GO runs."""
        self.noop = False
        """Whether that batch is a no-op batch."""
        self.begun = memoryview(self.report)[memory.BEGUN_AT :].cast("Q")
        """Number of calls of the batch that have begun. The referee replaces the inputs of later calls, so a false
        number harms only the kernel."""
        self.last_result: Any = None
        self.output_copies = OutputCopies(self.device.holds_results)
        """The output copies of the loaded kernel."""
        compiling.on_compile_start = lambda: self.say(Kind.COMPILING)
        compiling.on_compile_end = lambda: self.say(Kind.COMPILED)
        self.handlers |= {
            messages.MapArenas: self.map_arenas,
            messages.LoadKernel: self.load,
            messages.Arm: self.arm,
            messages.Go: self.go,
            messages.Recopy: self.recopy,
            messages.MapGate: self.map_gate,
            messages.ChooseBatch: self.choose,
            messages.FinishBatch: self.finish,
        }

    def blame(self, error: BaseException) -> None:
        """Reports an exception of the kernel's code, with the kernel's line."""
        own = not self.kernel_folder or kernel_module.deepest(error, self.kernel_folder) == self.kernel_path
        line = (getattr(error, "line", None) if own else None) or kernel_module.kernel_line(error, self.kernel_path)
        kind = kernel_module.failure_kind(error, loading=self.solution is None)
        self.fail(kind, kernel_module.describe(error, self.kernel_path, self.kernel_folder), int(line))

    # --- before the kernel ---------------------------------------------------------------------------------

    def open(self, order: messages.OpenProblem, fds: list[int]) -> None:
        """Opens a problem with a setting (collective)."""
        self.forget()
        super().open(order, fds)

    def forget(self) -> None:
        """Drops all references to the arenas."""
        vars(self).pop("iterations", None)
        self.last_result = None
        self.results = []

    def map_arenas(self, order: messages.MapArenas, fds: list[int]) -> None:
        """Maps the sealed inputs and the outputs."""
        inputs, outputs = fds
        layout = order.layout
        self.forget()
        self.device.release(self.inputs)
        self.device.release(self.outputs)
        self.device.sealed = layout.sealed
        mutates = self.code.problem.mutates
        attach = self.device.map_output if mutates and layout.sealed else self.device.map_input
        self.inputs = attach(inputs, layout.in_bytes * layout.slots)
        self.outputs = self.device.map_output(outputs, layout.out_bytes * layout.slots)
        self.iterations = Iterations(self.code, self.setting, layout, self.inputs, self.outputs)
        if not mutates and not self.code.problem.check.may_alias:
            for slot in self.iterations.slots:
                slot.refuse_inputs(self.inputs)
        os.close(inputs)
        os.close(outputs)
        self.say(Kind.MAPPED)

    def map_gate(self, order: messages.MapGate, fds: list[int]) -> None:
        """Maps the starting gate's page, through which the referee releases a batch and reads its end."""
        self.gate = self.device.gate(mmap.mmap(fds[0], 0), self.rank)
        os.close(fds[0])
        self.say(Kind.GATED)

    def load(self, order: messages.LoadKernel, fds: list[int]) -> None:
        """Imports a kernel's text as a module and finds its solution."""
        self.kernel_folder = order.folder
        self.kernel_path = f"{order.folder}/{MAIN}" if order.folder else str(self.folder / Path(order.name).name)
        build.kernel_digest = order.sha256
        self.solution = None
        self.output_copies = OutputCopies(self.device.holds_results)
        parameters = self.code.problem.parameters
        try:
            self.solution = kernel_module.load_solution(order.source, self.kernel_path, parameters, order.folder)
        except kernel_module.KernelRefused as refused:
            self.fail(refused.kind, str(refused), refused.line)
            return
        self.say(Kind.LOADED)

    # --- off the clock -------------------------------------------------------------------------------------

    def arm(self, order: messages.Arm, fds: list[int]) -> None:
        """Assembles the arguments of iterations, and chooses their batch if the order names one."""
        iterations = self.iterations
        self.checking, self.results = order.checking, []
        self.begun[0] = 0
        iterations.measure(order.slots)
        if not self.device.sealed:
            self.device.receive(iterations.used_in)  # `arm` reads the inputs that determine shapes
            self.outputs.fill_(slots.POISON)
        iterations.arm(order.slots, order.checking)
        if iterations.armed and not self.checking:
            assert self.solution is not None
            iterations.lay_out(self.solution)
        self.batch = slice(0, len(iterations.armed))
        if order.timed:
            return
        self.epoch, self.noop = 0, False
        gc.collect(0)
        if order.batch is not None:
            self.choose(order.batch, [])
            return
        self.device.synchronize()
        self.say(Kind.ARMED)

    def choose(self, order: messages.ChooseBatch, fds: list[int]) -> None:
        """Chooses the iterations of the next batch, and makes untimed calls."""
        assert self.solution is not None
        first = order.first - self.iterations.first
        self.batch = slice(first, first + order.count)
        self.epoch = order.epoch
        self.noop = order.noop
        self.begun[0] = 0
        self.device.receive(self.iterations.used_in)
        for _ in range(order.warm):
            self.last_result, _ = self.iterations.rehearse(self.solution)
        slot = self.iterations.slots[order.first if self.iterations.armed else 0]
        self.output_copies.warm_up(slot, self.last_result)
        self.output_copies.reuses |= order.reuses
        self.output_copies.start(order.count, order.noop)
        self.spark.add_(1)
        self.device.synchronize()
        self.say(Kind.CHOSEN)

    # --- batches -------------------------------------------------------------------------------------------

    def go(self, order: messages.Go, fds: list[int]) -> None:
        """Runs the batch, which the referee times."""
        if self.epoch:
            self.queue_batch()
            return
        if self.checking:
            self.checked_batch()
        else:
            self.timed_batch()
            self.device.synchronize()
        self.done()

    def queue_batch(self) -> None:
        """Queues the batch behind the closed gate. The referee opens it when every rank has queued, and then sends FINISH."""
        assert self.gate is not None
        self.gate.shut(self.epoch)
        self.timed_batch()
        self.gate.mark(self.epoch)
        self.say(Kind.QUEUED)

    def finish(self, order: messages.FinishBatch, fds: list[int]) -> None:
        """Waits for a queued batch, on all streams."""
        self.device.synchronize()
        self.done()

    def done(self) -> None:
        """Sends DONE, which stops the referee's clock, and then delivers unsealed outputs."""
        self.say(Kind.DONE, self.output_copies.report)
        if not self.device.sealed:
            self.device.deliver(self.iterations.used_out)
            self.say(Kind.DELIVERED)

    def timed_batch(self) -> None:
        """Makes the calls one after another and passes each output to the output copies.

        A no-op batch runs the same loop with a stored result.
        """
        assert self.solution is not None
        solution, written = self.solution, self.code.problem.written
        if self.noop:
            result = self.last_result

            def solution(*arguments: Any) -> Any:
                return result

        batch = self.iterations.armed[self.batch]
        put, finish, begun = self.output_copies.put, self.output_copies.finish, self.begun
        gc.disable()
        try:
            for number, (arguments, given, _, slot) in enumerate(batch, 1):
                begun[0] = number
                put(slot, with_mutated(solution(*arguments), given, written))
            finish()
        except (NotATree, slots.DoesNotFit) as error:
            self.fail(Kind.BAD_STRUCTURE, str(error))
            raise Reported from None
        finally:
            gc.enable()

    def checked_batch(self) -> None:
        """Runs the checked first calls. Their results are kept for `recopy`."""
        assert self.solution is not None
        try:
            self.results = kernel_module.run_checked(
                self.solution, self.iterations, self.device.synchronize, partial(operator.setitem, self.begun, 0)
            )
        except kernel_module.KernelRefused as refused:
            self.fail(refused.kind, str(refused))
            raise Reported from None

    def recopy(self, order: messages.Recopy, fds: list[int]) -> None:
        """Copies the results of the last checked batch again, to detect results that were still being written."""
        for result, iteration in zip(self.results, self.iterations.armed, strict=True):
            iteration.slot.outline = None  # the header is poisoned since the comparison
            iteration.slot.pack(*flatten(result))
        self.device.synchronize()
        self.device.deliver(self.iterations.used_out)
        self.say(Kind.RECOPIED)
