"""Behaviour of the ranks of simulated worlds: a kernel's times and faults, and the trusted ranks' findings."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from sandbox.memory.host import TensorPlace
from sandbox.protocol.events import OutputError
from sandbox.protocol.frames import Kind
from sandbox.protocol.messages import CompareOutputs, DrawAgain, LookAhead, Order, OutputFinding, Reveal
from sandbox.protocol.result import Transfers
from sandbox.protocol.verdict import Verdict

BatchTime = Callable[[int], float]


def noisy(us: float, spread: float = 0.0, seed: int = 0) -> BatchTime:
    """Returns batch times of `us` microseconds a call, with log-normal noise.

    spread: standard deviation of the logarithm.
    """
    chance = random.Random(seed)
    return lambda calls: us * calls * math.exp(chance.gauss(0.0, spread))


@dataclass
class Fault:
    """A wrong action of ranks in place of the right answer."""

    order: Kind
    """The order that triggers it; READY: the start of the ranks."""
    says: Kind | None = None
    """The message sent in place of the answer; None: no message."""
    ranks: Sequence[int] = (0,)
    after: int = 0
    """The number of orders of this kind that are answered correctly first."""
    text: str = ""
    line: int = 0
    status: int | None = None
    """The wait status with which the ranks end."""
    extra: bool = False
    """Whether the right answer is sent first."""
    times: int = 1_000_000
    """The number of times that it happens."""


@dataclass
class MadeKernel:
    """Behaviour of ranks that have loaded this kernel. A BatchTime maps the calls of a batch to its microseconds."""

    call_us: BatchTime = field(default_factory=lambda: noisy(100.0))
    gated_us: BatchTime = field(default_factory=lambda: noisy(80.0))
    noop_us: BatchTime = field(default_factory=lambda: noisy(2.0))
    """Time of a no-op batch."""
    noop_gated_us: BatchTime = field(default_factory=lambda: noisy(2.0))
    start_us: float = 0.0
    """Extra time of every batch of calls, but not of no-op batches."""
    offsets: Sequence[float] = (0.0,)
    """The logarithms of the factors by which the worlds that load it are slower, in the order of loading."""
    queues: int = 1000
    """The number of calls that can be launched without waiting for the device."""
    launch_us: float = 1.0
    """Time of the launch of each of them."""
    queues_noop: bool = True
    """Whether a no-op batch can be launched without waiting for the device."""
    trailing_us: float = 10.0
    """Time from the mark behind the gate until the rank sends DONE."""
    marks: bool = True
    """Whether the mark is ever written."""
    begun: Callable[[int, int], int] = lambda rank, calls: calls // 2
    """begun(rank, calls of the batch): the number of calls that have begun when the referee reads it."""
    lies: bool = False
    """Whether they count as begun at once, before they can have."""
    bears_processes: bool = False
    """Whether a process that was started in a batch still runs at its end."""
    helpers: list[int] = field(default_factory=list)
    """Ids of its processes beside the ranks."""
    late_cpu_s: float = 0.0
    """CPU seconds of all ranks after the order to stop at the end of a batch."""
    cpu_share: float = 0.0
    """CPU seconds per second that its processes use, also while they should be stopped."""
    unstoppable: str = ""
    """The error when its processes are to be stopped; empty: they stop."""
    without_core: float = 0.0
    """Seconds per second for which its ranks are ready to run but have no core."""
    gives_way: bool = False
    """Whether a rank has chosen a lower priority."""
    excess: str = ""
    """The excess over its memory limit, in words; empty: none."""
    memory_reports: list[int] = field(default_factory=list)
    """The values of the first rank's next DONEs: REUSES or LOST."""
    arm_s: float = 0.0
    """Extra seconds to assemble a batch."""
    compile_s: float = 0.0
    """Seconds of compiling while it is loaded."""
    faults: list[Fault] = field(default_factory=list)


@dataclass
class MadeOracle:
    """Findings of the ranks of the oracle world."""

    seconds: float = 100e-6
    """The baseline's time per call that the oracle world measures."""
    draw_s: tuple[float, float] = 0.0, 0.0
    """Seconds of any draw, and seconds more for the inputs of each call."""
    in_bytes: int = 1 << 10
    out_bytes: int = 1 << 10
    sealed: bool = True
    varies: bool = False
    """Whether shapes differ between inputs."""
    tensors: Callable[[int, int], list[TensorPlace]] = lambda rank, slot: []
    """tensors(rank, slot): the places of drawn tensors."""
    references: int | None = None
    """The number of reference worlds that fit into device memory; None: all."""
    lost_fds: bool = False
    finding: Callable[[int, CompareOutputs, int], OutputFinding] = lambda rank, order, slot: right()
    """finding(rank, order, slot)."""
    touched: Callable[[int, Order[Any]], list[int]] = lambda rank, order: []
    """touched(rank, order): the sides whose poison was overwritten, at a Draw or a CheckPoison."""
    written: Callable[[int, LookAhead], bool] = lambda rank, order: False
    """written(rank, order): whether calls that have not begun have outputs."""
    fits: Callable[[int, DrawAgain], bool] = lambda rank, order: True
    """fits(rank, order): whether the new iteration can replace the one in the slot."""
    foreign_us: Callable[[Reveal], float] = lambda order: 0.0
    peaks_of: Callable[[int], dict[str, float]] = lambda rank: {"local": 1e9, "start_us": 5.0}
    """peaks_of(rank)."""
    transfers_of: Callable[[int, bool], Transfers] = lambda rank, backends: Transfers([2048], [])
    """transfers_of(rank, whether they are by optional libraries)."""
    faults: list[Fault] = field(default_factory=list)


def figures(ok: bool = True, rms: float = 0.0, exact: bool = False) -> OutputError:
    """Returns the error of the only output."""
    wrong = 0 if ok else 3
    limits = (0.0, 0.0) if exact else (1e-2, 1e-1)
    return OutputError(
        "out", ok, exact, rms, rms, 1e-3, 1e-2, *limits, wrong, 10, [10], None if ok else [4], "1.0", "2.0"
    )


@cache
def right() -> OutputFinding:
    """Returns the finding of a right iteration."""
    return OutputFinding(Verdict.PASS, outputs=[figures(rms=1e-3)], paper=True)


def wrong(verdict: Verdict = Verdict.WRONG_RESULT, exact: bool = False) -> OutputFinding:
    """Returns the finding of an iteration with three wrong elements."""
    return OutputFinding(verdict, outputs=[figures(ok=False, rms=1.0, exact=exact)])
