"""Behaviour of the ranks of made worlds: a kernel's times and faults, and the trusted ranks' findings."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sandbox.protocol.events import OutputError
from sandbox.protocol.finding import OutputFinding
from sandbox.protocol.frames import Kind
from sandbox.protocol.messages import CompareOutputs, DrawAgain, LookAhead, Order, Reveal
from sandbox.protocol.transfers import Transfers
from sandbox.protocol.verdict import Verdict

BatchTime = Callable[[int], float]


def noisy(us: float, spread: float = 0.0, seed: int = 0) -> BatchTime:
    """Microseconds of a batch: so many a call, with log-normal noise (standard deviation of the logarithm)."""
    chance = random.Random(seed)
    return lambda calls: us * calls * math.exp(chance.gauss(0.0, spread))


@dataclass
class Fault:
    """Something that ranks do instead of answering as they should."""

    order: Kind
    """The order at which it happens; READY: instead of getting ready."""
    says: Kind | None = None
    """What is said in place of the answer; None: nothing."""
    ranks: Sequence[int] = (0,)
    after: int = 0
    """So many orders of this kind are answered well before."""
    text: str = ""
    line: int = 0
    status: int | None = None
    """The wait status with which the ranks end."""
    extra: bool = False
    """It is said after the right answer."""
    times: int = 1_000_000
    """It happens so often."""


@dataclass
class MadeKernel:
    """What the ranks of worlds do that have loaded this kernel. Times in microseconds, of a whole batch by its calls."""

    call_us: BatchTime = field(default_factory=lambda: noisy(100.0))
    gated_us: BatchTime = field(default_factory=lambda: noisy(80.0))
    noop_us: BatchTime = field(default_factory=lambda: noisy(2.0))
    """Of a batch of kept results."""
    noop_gated_us: BatchTime = field(default_factory=lambda: noisy(2.0))
    start_us: float = 0.0
    """More in every batch of calls."""
    offsets: Sequence[float] = (0.0,)
    """By world that loads it: the logarithm by which it is slower than others."""
    queues: int = 1000
    """Calls that can be launched without waiting for the device."""
    queues_noop: bool = True
    """Whether kept results can be copied without waiting for it."""
    trailing_us: float = 10.0
    """From the mark behind the gate until the rank says that it is done."""
    marks: bool = True
    """Whether the mark is ever written."""
    begun: Callable[[int, int], int] = lambda rank, calls: calls // 2
    """By rank and calls of the batch: how many have begun when somebody looks."""
    bears_processes: bool = False
    """Whether a process that was born in a batch still runs at its end."""
    helpers: list[int] = field(default_factory=list)
    """Its processes beside the ranks."""
    cpu_share: float = 0.0
    """CPU time that its processes use while they should rest, per second."""
    unstoppable: str = ""
    """What is said when it was told to stop."""
    without_core: float = 0.0
    """Time for which its ranks are ready to run and have no core, per second."""
    excess: str = ""
    """What is said of its memory."""
    arm_s: float = 0.0
    """More to assemble a batch, in seconds."""
    compile_s: float = 0.0
    """Compiling within the load."""
    faults: list[Fault] = field(default_factory=list)


@dataclass
class MadeOracle:
    """What the ranks of the trusted world find."""

    seconds: float = 100e-6
    """The baseline's time per call, as probed."""
    in_bytes: int = 1 << 10
    out_bytes: int = 1 << 10
    sealed: bool = True
    varies: bool = False
    """Whether calls have other shapes on other inputs."""
    references: int | None = None
    """Pool that the devices have room for."""
    lost_fds: bool = False
    finding: Callable[[int, CompareOutputs, int], OutputFinding] = lambda rank, order, slot: right()
    """By rank, order and slot."""
    touched: Callable[[int, Order], list[int]] = lambda rank, order: []
    """Sides whose poison was overwritten, seen at a Draw or a CheckPoison."""
    written: Callable[[int, LookAhead], bool] = lambda rank, order: False
    """By rank: whether calls that have not begun have outputs."""
    fits: Callable[[int, DrawAgain], bool] = lambda rank, order: True
    """By rank: whether another iteration fits in the place of one."""
    foreign_us: Callable[[Reveal], float] = lambda order: 0.0
    peaks_of: Callable[[int], dict[str, float]] = lambda rank: {"local": 1e9, "start_us": 5.0}
    """By rank."""
    transfers_of: Callable[[int, bool], Transfers] = lambda rank, backends: Transfers([2048], [])
    """By rank, and whether by other libraries."""
    faults: list[Fault] = field(default_factory=list)


def figures(ok: bool = True, rms: float = 0.0, exact: bool = False) -> OutputError:
    """Of the only output."""
    wrong = 0 if ok else 3
    limits = (0.0, 0.0) if exact else (1e-2, 1e-1)
    return OutputError(
        "out", ok, exact, rms, rms, 1e-3, 1e-2, *limits, wrong, 10, [10], None if ok else [4], "1.0", "2.0"
    )


def right() -> OutputFinding:
    """A right iteration."""
    return OutputFinding(Verdict.PASS, outputs=[figures(rms=1e-3)], paper=True)


def wrong(verdict: Verdict = Verdict.WRONG_RESULT, exact: bool = False) -> OutputFinding:
    """An iteration with three wrong elements."""
    return OutputFinding(verdict, outputs=[figures(ok=False, rms=1.0, exact=exact)], paper=False)
