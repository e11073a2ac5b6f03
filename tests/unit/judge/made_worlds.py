"""Worlds without processes: their ranks answer by a script, at times of the simulated clock.

A simulated world is a real World, with its states and their legal moves, on simulated processes, wires and gate.
A MadeKernel defines what its ranks do; a MadeOracle defines it for the oracle world.
"""

import contextlib
import math
import os
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from made_clock import MadeClock
from made_kernels import Fault, MadeKernel

from sandbox.protocol.frames import FAILURES, Kind
from sandbox.protocol.kernel_files import Kernel
from sandbox.protocol.messages import Arm, ChooseBatch, LoadKernel, MapArenas, Order
from sandbox.worlds.failures import WorldFailed
from sandbox.worlds.first_process import WorldSpec
from sandbox.worlds.rank_wire import Received
from sandbox.worlds.stopping import Activity, CannotStop

ANSWER = {
    Kind.OPEN: Kind.OPENED,
    Kind.MAP_ARENAS: Kind.MAPPED,
    Kind.MAP_GATE: Kind.GATED,
    Kind.LOAD: Kind.LOADED,
    Kind.ARM: Kind.ARMED,
    Kind.CHOOSE: Kind.CHOSEN,
    Kind.RECOPY: Kind.RECOPIED,
    Kind.WAKE: Kind.AWAKE,
}
"""The answers of every rank to orders that have no reply of their own."""
ORDER_SECONDS = 20e-6
START_SECONDS, OPEN_SECONDS = 0.5, 0.1


class MadeRanks:
    """The wires to the ranks of a simulated world, and these ranks. It replaces sandbox.worlds.wires.Wires."""

    def __init__(
        self,
        clock: MadeClock,
        spec: WorldSpec,
        faults: list[Fault],
        kernel_of: Callable[[str], tuple[MadeKernel, float]],
    ) -> None:
        """Starts the ranks.

        faults: of the ranks themselves, whatever kernel they load.
        kernel_of(name): the kernel and this world's offset.
        """
        self.clock = clock
        self.spec = spec
        self.kernel_of = kernel_of
        self.sealed = True
        self.said: dict[int, str] = {}
        self.failure: WorldFailed | None = None
        self.kernel = MadeKernel()
        self.name = ""
        """The name of the loaded kernel."""
        self.offset = 0.0
        self.orders: list[Order[Any]] = []
        """All orders that the first rank got."""
        self.paused = False
        self.heard = True
        self.on_go: Callable[[], None] = lambda: None
        """Called when a batch starts."""
        self.batch = ChooseBatch(0, 0)
        self.marked_ns = 0
        self._waiting_for_gate: list[tuple[int, Kind]] = []
        self._answers: list[deque[Received]] = [deque() for _ in range(spec.ranks)]
        self._reported: dict[int, WorldFailed] = {}
        self._ended: dict[int, WorldFailed] = {}
        self._held: list[Callable[[], None]] = []
        self._own_faults = faults
        self._count: dict[Kind, int] = {}
        self._compiled = self._compiling_since = 0.0
        self.waits_for_core_s = 0.0
        """The seconds from GO until the ranks get a core."""
        self._begins_at = 0.0
        self._watch: Callable[[bool], None] | None = None
        for rank in range(spec.ranks):
            self._reply(rank, Kind.READY, Kind.READY, START_SECONDS)

    # --- the interface that World uses -------------------------------------------------------------------------

    @property
    def compile_seconds(self) -> float:
        since = self._compiling_since
        return self._compiled + (self.clock.monotonic() - since if since else 0.0)

    def said_by(self, rank: int) -> str:
        return self.said.get(rank, "")

    def watch_compiling(self, watcher: Callable[[bool], None] | None) -> None:
        self._watch = watcher

    def send(self, orders: Sequence[Order[Any]], fds: Sequence[tuple[int, ...]] | None = None) -> None:
        """An Arm with a batch is noted as two orders."""
        assert len(orders) == len(fds or orders) == self.spec.ranks
        first = orders[0]
        noted = [first, first.batch] if isinstance(first, Arm) and first.batch else [first]
        self.orders += noted
        for rank, order in enumerate(orders):
            self.take_order(rank, order)
        for order in noted:
            self._count[order.kind] = self._count.get(order.kind, 0) + 1

    @contextlib.contextmanager
    def unheard(self) -> Iterator[None]:
        self.heard = False
        yield
        self.heard = True

    def require_silence(self) -> None:
        for rank, answers in enumerate(self._answers):
            if answers and answers[0].kind not in FAILURES:
                self.fail(WorldFailed("PROTOCOL", rank, text=f"sent {answers[0].kind.name} before GO"))

    def release(self, ranks: Sequence[int] | None = None) -> None:
        self.on_go()
        self._begins_at = self.clock.monotonic() + self.waits_for_core_s
        calls = self.batch.count
        if self.batch.epoch:
            self._queue(calls)
        else:
            kernel = self.kernel
            us = kernel.noop_us(calls) if self.batch.noop else kernel.start_us + kernel.call_us(calls)
            us *= math.exp(self.offset)
            for rank in range(self.spec.ranks) if ranks is None else ranks:
                self._done(rank, Kind.GO, us / 1e6 * (1.0 if rank == 0 else 0.9))
        self._count[Kind.GO] = self._count.get(Kind.GO, 0) + 1

    def calls_begun(self) -> list[int]:
        blocked = min(self.kernel.queues + 1, self.batch.count)
        begun = (lambda rank, calls: blocked) if self._waiting_for_gate else self.kernel.begun
        since = max(0.0, self.clock.monotonic() - self._begins_at)
        most = (1 << 63) if self.kernel.lies else 1 + int(since * 1e6 / self.kernel.launch_us)
        return [min(begun(rank, self.batch.count), most) for rank in range(self.spec.ranks)]

    def has_begun(self, rank: int) -> bool:
        return self.clock.monotonic() >= self._begins_at

    def missing(self, kind: Kind, ended: Callable[[], str]) -> list[int]:
        if self.failure is not None:
            raise self.failure
        for rank, answers in enumerate(self._answers):
            if answers and answers[0].kind in FAILURES:
                raise self._reported[rank]
        waiting = []
        for rank, answers in enumerate(self._answers):
            if answers:
                if answers[0].kind is not kind:
                    raise WorldFailed("PROTOCOL", rank, text=f"sent {answers[0].kind.name} where {kind.name} was due")
            elif rank in self._ended:
                raise WorldFailed("NO_MEMORY", rank, text=why) if (why := ended()) else self._ended[rank]
            else:
                waiting.append(rank)
        return waiting

    def take(self) -> list[Received]:
        return [answers.popleft() for answers in self._answers]

    def take_synced(self, number: int) -> bool:
        if self.failure or self._ended:
            raise self.failure or next(iter(self._ended.values()))
        found = all(
            any(answer.kind is Kind.SYNC and answer.reply == number for answer in answers) for answers in self._answers
        )
        if found:
            self.close()
        return found

    def fail(self, failure: WorldFailed) -> None:
        self.failure = self.failure or failure

    def close(self) -> None:
        for answers in self._answers:
            for answer in answers:
                for fd in answer.fds:
                    os.close(fd)
            answers.clear()

    # --- what the ranks do -------------------------------------------------------------------------------------

    def take_order(self, rank: int, order: Order[Any]) -> None:
        """Carries out an order on one rank."""
        delay = OPEN_SECONDS if order.kind is Kind.OPEN else ORDER_SECONDS
        if isinstance(order, LoadKernel):
            if rank == 0:
                self.name = order.name
                self.kernel, self.offset = self.kernel_of(order.name)
            delay += self._compile(rank)
        elif isinstance(order, MapArenas):
            self.sealed = order.layout.sealed
        elif isinstance(order, Arm):
            delay += self.kernel.arm_s
            self.batch = order.batch or ChooseBatch(0, len(order.slots))
            if order.batch is not None:
                kind = Kind.ARM if self._fault(rank, Kind.ARM) else Kind.CHOOSE
                self._reply(rank, kind, Kind.CHOSEN, delay)
                return
        elif isinstance(order, ChooseBatch):
            self.batch = order
        if order.kind is Kind.FINISH:
            late = max(0, self.marked_ns - self.clock.now_ns) / 1e9
            self._done(rank, Kind.FINISH, late + self.kernel.trailing_us / 1e6)
        else:
            self._reply(rank, order.kind, ANSWER[order.kind], delay)

    def resume(self) -> None:
        """Sends the answers that were held back while the processes were stopped."""
        self.paused = False
        held, self._held = self._held, []
        for deliver in held:
            deliver()

    def _compile(self, rank: int) -> float:
        seconds = self.kernel.compile_s
        if seconds and rank == 0:
            self._turn_compiling(True)
            self.clock.after(seconds, lambda: self._turn_compiling(False))
        return seconds

    def _turn_compiling(self, active: bool) -> None:
        if active:
            self._compiling_since = self.clock.monotonic()
        else:
            self._compiled, self._compiling_since = self.compile_seconds, 0.0
        if self._watch is not None:
            self._watch(active)

    def _queue(self, calls: int) -> None:
        fits = self.kernel.queues_noop if self.batch.noop else calls <= self.kernel.queues
        for rank in range(self.spec.ranks):
            if fits:
                self._reply(rank, Kind.GO, Kind.QUEUED, 1e-6 * calls * self.kernel.launch_us)
            else:
                self._waiting_for_gate.append((rank, Kind.QUEUED))

    def gate_opened(self) -> None:
        """Starts the queued work on the device."""
        kernel, calls = self.kernel, self.batch.count
        us = kernel.noop_gated_us(calls) if self.batch.noop else kernel.start_us + kernel.gated_us(calls)
        self.marked_ns = self.clock.now_ns + round(us * math.exp(self.offset) * 1e3)
        waiting, self._waiting_for_gate = self._waiting_for_gate, []
        for rank, kind in waiting:
            self._reply(rank, Kind.GO, kind, us / 1e6)

    def _done(self, rank: int, order: Kind, seconds: float) -> None:
        self._reply(rank, order, Kind.DONE, seconds)
        if not self.sealed:
            self._reply(rank, Kind.DELIVERED, Kind.DELIVERED, seconds + ORDER_SECONDS)

    def _reply(self, rank: int, order: Kind, kind: Kind, seconds: float, reply: Any = None) -> None:
        """Sends an answer in so many seconds, unless a fault replaces it."""
        fault = self._fault(rank, order)
        if fault is None or fault.extra:
            reports = self.kernel.memory_reports if kind is Kind.DONE and rank == 0 else []
            self._later(rank, Received(kind, reports.pop(0) if reports else 0, reply, self._fds(kind)), seconds)
        if fault is None:
            return
        fault.times -= 1
        if fault.status is not None:
            ended = WorldFailed("DIED", rank, status=fault.status)
            self.clock.after(seconds, lambda: self._ended.setdefault(rank, ended))
        if fault.says is not None:
            self._reported[rank] = WorldFailed(fault.says.name, rank, fault.line, fault.text)
            self._later(rank, Received(fault.says, fault.line, None, []), seconds)

    def _fds(self, kind: Kind) -> list[int]:
        return []

    def _fault(self, rank: int, order: Kind) -> Fault | None:
        for fault in (*self._own_faults, *self.kernel.faults):
            before = self._count.get(order, 0)
            if fault.order is order and rank in fault.ranks and before >= fault.after and fault.times > 0:
                return fault
        return None

    def _later(self, rank: int, answer: Received, seconds: float) -> None:
        def deliver() -> None:
            if self.paused:
                self._held.append(deliver)
            else:
                self._answers[rank].append(answer)

        self.clock.after(seconds, deliver)


class MadeProcesses:
    """The processes of a simulated world. It replaces sandbox.worlds.world_process.WorldProcess."""

    def __init__(self, ranks: MadeRanks, number: int) -> None:
        self.ranks = ranks
        self.number = number
        self.rank_pids: list[int] = []
        self.pins: list[tuple[int, list[int]]] = []
        """(rank, cores) of every pinning, in order."""
        self.held: list[int] = []
        """Ranks that are stopped on their own."""
        self.stacks_printed = False
        self.shown: list[str] = []
        """Digests of kernels whose compiled code was shown."""
        self.kept: list[str] = []
        """Digests of kernels whose compiled code was kept."""
        self.why_killed = ""
        self.closed = False

    def find_ranks(self) -> None:
        assert not self.rank_pids  # a kernel may have started others since
        self.rank_pids = [1000 * self.number + rank for rank in range(self.ranks.spec.ranks)]

    @property
    def paused(self) -> bool:
        return self.ranks.paused

    def pause(self) -> bool:
        self.ranks.paused = True
        return self.ranks.kernel.bears_processes

    def resume(self, held: Collection[int] = ()) -> None:
        if self.paused:
            self.held = list(held)
            self.ranks.resume()

    def pause_rank(self, rank: int) -> None:
        self.held.append(self.rank_pids[rank] % 1000)

    def resume_rank(self, rank: int) -> None:
        self.held.remove(rank)

    def halt(self) -> None:
        self.ranks.paused = True

    def await_stopped(self, rank: int | None = None) -> None:
        assert self.paused or rank in self.held
        if self.ranks.kernel.unstoppable:
            raise CannotStop(self.ranks.kernel.unstoppable)

    def helpers(self) -> list[int]:
        return self.ranks.kernel.helpers

    def activity(self) -> Activity:
        return Activity(self.ranks.kernel.cpu_share * self.ranks.clock.monotonic())

    def meter(self) -> Callable[[], float]:
        return lambda: self.ranks.kernel.late_cpu_s

    def pin(self, rank: int, cores: Sequence[int]) -> None:
        self.pins.append((self.rank_pids[rank] % 1000, list(cores)))

    @property
    def ran_s(self) -> float:
        return self.ranks.clock.monotonic() / self.ranks.spec.ranks

    def waited_for_cores(self) -> float:
        return self.ranks.kernel.without_core * self.ranks.clock.monotonic()

    def give_way(self) -> bool:
        return self.ranks.kernel.gives_way

    def print_stacks(self) -> None:
        self.stacks_printed = True

    def excess(self) -> str:
        return self.ranks.kernel.excess

    def killed(self) -> str:
        return self.why_killed

    def show_files(self, kernel: Kernel) -> str:
        """Returns an empty path: there is no folder."""
        return ""

    def show_compiled(self, digest: str) -> None:
        self.shown.append(digest)

    def keep_compiled(self, digest: str) -> None:
        self.kept.append(digest)

    def close(self) -> bool:
        self.closed = True
        return True


class MadeGate:
    """The starting gate of a simulated world. It replaces sandbox.protocol.frames.GatePage."""

    fd = -1

    def __init__(self, ranks: MadeRanks) -> None:
        self.ranks = ranks
        self.epoch = 0
        self.opened = 0

    def shut(self) -> int:
        self.epoch += 1
        return self.epoch

    def open(self) -> int:
        self.opened += 1
        now = self.ranks.clock.perf_counter_ns()
        self.ranks.gate_opened()
        return now

    def wait(self, seconds: float) -> int | None:
        clock, marked = self.ranks.clock, self.ranks.marked_ns
        if not self.ranks.kernel.marks or marked > clock.now_ns + round(seconds * 1e9):
            clock.sleep(seconds)
            return None
        clock.sleep(max(0, marked - clock.now_ns) / 1e9)
        return clock.now_ns

    def close(self) -> None:
        self.fd = -1
