"""Messages between referee and ranks: a struct per order, which names the type of a trusted rank's reply.

An untrusted rank answers with bare headers (sandbox/protocol/frames.py).
"""

import array
import socket
from typing import Any, ClassVar, Generic, TypeVar, get_args

import msgspec

from sandbox.memory.host import TensorPlace
from sandbox.protocol import frames
from sandbox.protocol.events import OutputError, Setting
from sandbox.protocol.frames import Kind
from sandbox.protocol.result import Transfers
from sandbox.protocol.verdict import Verdict

R = TypeVar("R")


class OutputFinding(msgspec.Struct, frozen=True):
    """One rank's comparison of one iteration."""

    verdict: Verdict
    message: str = ""
    """The reason if no figures were computed: the structure is wrong, or nothing was written."""
    output: str | None = None
    """The output that `message` is about."""
    outputs: list[OutputError] = []
    """Figures of every output, in canonical order; empty if there is a `message`."""
    paper: bool = False
    """Whether upstream's rule accepts all outputs."""


class SlotLayout(msgspec.Struct, frozen=True):
    """The layout of a setting's arenas, the same for every rank."""

    in_bytes: int
    """Size of an input slot."""
    out_bytes: int
    """Size of an output slot."""
    room: int
    """Tensors that the header of an output slot can describe."""
    slots: int
    """Iterations that an arena holds."""
    sealed: bool
    """Whether arenas are shared memory with restricted rights."""


class SlotTable(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One drawn iteration: its slot and the places of its tensors."""

    index: int
    tensors: list[TensorPlace]


# --- orders to every rank --------------------------------------------------------------------------------


class Order(msgspec.Struct, Generic[R], frozen=True):
    """Base of all messages to a rank. R: the type of a trusted rank's reply; None for an answer without contents."""

    kind: ClassVar[Kind]
    """In the header, also in that of a trusted rank's reply; it identifies the struct."""


class OpenProblem(Order[None], frozen=True):
    """Open a problem with a setting (collective). Answer: OPENED."""

    kind = Kind.OPEN
    setting: Setting


class MapArenas(Order[None], frozen=True):
    """Map the two descriptors that come with it: sealed inputs, outputs. Answer: MAPPED."""

    kind = Kind.MAP_ARENAS
    layout: SlotLayout


class LoadKernel(Order[None], frozen=True):
    """Import a kernel's text as a module. Answer: LOADED."""

    kind = Kind.LOAD
    name: str
    source: str
    folder: str = ""
    """The folder with all files of a kernel of several files, as the rank sees it; else empty."""
    sha256: str = ""
    """SHA-256 of such a kernel; else empty."""


class ChooseBatch(Order[None], frozen=True):
    """Choose the armed iterations for the next GO, and make untimed calls. Answer: CHOSEN."""

    kind = Kind.CHOOSE
    first: int
    """Slot of the first iteration."""
    count: int
    """Iterations, in consecutive slots; 0: a batch without calls."""
    warm: int = 0
    """Untimed calls before the answer, so that every batch starts with warm caches."""
    noop: bool = False
    """A no-op batch: it returns a stored result in place of each call, to measure the harness overhead."""
    epoch: int = 0
    """The gate's epoch for a gated batch; 0: the batch runs at GO."""
    reuses: bool = False
    """Whether a rank has reported that the kernel returns the same memory again: every rank copies outputs at once."""


class Arm(Order[None], frozen=True):
    """Assemble the arguments of these iterations. Answer: ARMED; with a batch CHOSEN; none if it is timed."""

    kind = Kind.ARM
    slots: list[SlotTable]
    checking: bool = False
    """Whether calls get private copies of the inputs, so that writes to them are found."""
    batch: ChooseBatch | None = None
    """A batch of these iterations that is chosen at once."""
    timed: bool = False
    """Whether GO follows at once."""


class Go(Order[None], frozen=True):
    """Run the chosen batch. Answer: DONE; behind the gate QUEUED."""

    kind = Kind.GO


class FinishBatch(Order[None], frozen=True):
    """The gate is open: wait for the queued batch. Answer: DONE."""

    kind = Kind.FINISH


class Recopy(Order[None], frozen=True):
    """Copy the results of the last checked batch to their slots again. Answer: RECOPIED."""

    kind = Kind.RECOPY


class Wake(Order[None], frozen=True):
    """Do a trivial operation on the device. Answer: AWAKE."""

    kind = Kind.WAKE


class MapGate(Order[None], frozen=True):
    """Map the gate's page, whose descriptor comes with it. Answer: GATED."""

    kind = Kind.MAP_GATE


# --- orders to trusted ranks, each with its reply ---------------------------------------------------------


class BaselineMeasured(msgspec.Struct, frozen=True):
    """The sizes of slots and the time of a baseline call. The rank keeps the calibrated errors."""

    in_bytes: int
    out_bytes: int
    room: int
    seconds: float
    sealed: bool
    varies: bool = False
    """Whether shapes of matrix products or convolutions vary between iterations."""
    references: int | None = None
    """Reference worlds that fit into the device's memory; None: no limit."""
    arena_bytes: int = 0
    """The limit for the arenas of one side that this rank has taken."""


class Drawn(msgspec.Struct, frozen=True):
    """The places of each iteration's tensors on this rank, and the sides whose poison was overwritten."""

    tables: list[SlotTable]
    touched: list[int]


class MeasureBaseline(Order[BaselineMeasured], frozen=True):
    """Draw iterations from these seeds, as many as needed, and run the baseline and the oracle on them (collective)."""

    kind = Kind.MEASURE_BASELINE
    seeds: list[int]
    arena_bytes: list[int]
    """Limits for the arenas of one side, the largest first. Each rank takes the first with which enough references fit."""
    references: int
    """Reference worlds that are enough."""


class MakeArenas(Order[None], frozen=True):
    """Make new arenas for one side of a run. Two descriptors for `MapArenas` come with the answer."""

    kind = Kind.MAKE_ARENAS
    layout: SlotLayout
    own: bool
    """Whether to make the trusted rank's own inputs, too."""
    side: int
    shared: bool = False
    """Whether the side reads the trusted rank's own inputs; only for worlds without a kernel."""


class Draw(Order[Drawn], frozen=True):
    """Fill the first slots with new iterations, one per seed."""

    kind = Kind.DRAW
    seeds: list[int]
    timed: bool
    """Whether they are timed. Then outputs must still be poisoned, and inputs are meaningful if upstream keeps a large one."""
    sides: list[int]
    """The sides whose inputs are filled."""


class Reveal(Order[float], frozen=True):
    """Complete the withheld inputs of some slots for a side, right before its GO.

    Reply: longest foreign work on the device in microseconds; 0 if not watched.
    """

    kind = Kind.REVEAL
    side: int | None
    """None: only watch the device. For a side that shares the inputs, only their copy into the caches is repeated."""
    first: int = 0
    count: int = 0
    watch: bool = False
    """Whether to measure foreign work on the device."""
    rank: int | None = None
    """The only rank whose inputs are completed; None: all."""
    epoch: int = 0
    """The epoch of this world's gate at which a part of each output is read, the end of the batch; 0: none is."""


class TakeOutputs(Order[None], frozen=True):
    """Copy a contender's outputs in some slots. Until the next draw the copies are compared."""

    kind = Kind.TAKE
    first: int
    count: int
    side: int


class CompareOutputs(Order[list[OutputFinding]], frozen=True):
    """Compare a contender's outputs in some slots (collective).

    Reply: one finding for each right slot, and after them one for the first wrong slot, if there is any.
    """

    kind = Kind.COMPARE
    slots: list[int]
    side: int
    against: int | None = None
    """The side that has run the baseline on these iterations; None: the trusted rank runs it now."""
    beside: list[int] = []
    """More slots, whose outputs are compared with the baseline's. Those that are farthest from it are compared in full, too."""


class CheckPoison(Order[list[int]], frozen=True):
    """Check that the output arenas are still poisoned. Reply: the sides whose poison was overwritten."""

    kind = Kind.CHECK_POISON
    sides: list[int]


class LookAhead(Order[bool], frozen=True):
    """Check a stopped batch for outputs of calls that have not begun, and note those of calls that have ended.

    Reply: whether a call that has not begun has an output.
    """

    kind = Kind.LOOK_AHEAD
    side: int
    batch: int
    """Slot of the first call of the batch."""
    first: int
    """Slot of the first call that has not begun."""
    count: int
    """Number of these calls."""
    ended: list[int]
    """By rank: the number of calls that have ended, as this rank counts; 0 as well if outputs may be written later."""


TRIALS = 1009
"""A seed modulo this is the trial of an iteration, by which arguments vary that a kernel can read before GO."""


class DrawAgain(Order[bool], frozen=True):
    """Draw an iteration from a seed to replace one whose arguments contenders have already assembled.

    Reply: whether the new iteration fits: all of the slot that a contender can read is equal. That is shapes, and inputs that are
    not withheld. If a rank is drawn alone, its inputs must differ, too, and those of all others must be equal.
    """

    kind = Kind.DRAW_AGAIN
    slot: int
    seed: int
    meaningful: bool = True
    """Whether it is drawn from the problem's own distribution, even if the run's inputs are drawn as upstream draws
    them."""
    replace: bool = False
    """Whether the trusted rank's own inputs are replaced by it. The same order without this came right before."""
    alone: int | None = None
    """The rank whose own random numbers come from the seed. All other numbers stay those of the iteration in the slot, so that
    the inputs of all other ranks stay as they are."""


class MeasurePeaks(Order[dict[str, float]], frozen=True):
    """Measure the peaks of this machine (collective). Reply: those of the rank, as sandbox.rank.devices.device.Device.peaks."""

    kind = Kind.MEASURE_PEAKS


class MeasureTransfers(Order[Transfers], frozen=True):
    """Time transfers between every two ranks (collective). Reply: the pairs whose first rank is this one."""

    kind = Kind.MEASURE_TRANSFERS
    backends: bool = False
    """Whether to time the ways of optional libraries, which may fail, instead of those that every device of this kind
    has."""


class Sync(Order[int], frozen=True):
    """Send a number back after all earlier answers."""

    kind = Kind.SYNC
    number: int


ORDERS: dict[Kind, type[Order[Any]]] = {order.kind: order for order in Order.__subclasses__()}
REPLIES: dict[Kind, Any] = {
    kind: get_args(vars(order)["__orig_bases__"][0])[0] for kind, order in ORDERS.items() if kind in frames.REPLIED
}
"""The types of replies of trusted ranks, by the kind of their order."""

_encode = msgspec.msgpack.Encoder().encode
_order_decoders = {kind: msgspec.msgpack.Decoder(order) for kind, order in ORDERS.items()}
_reply_decoders = {kind: msgspec.msgpack.Decoder(reply) for kind, reply in REPLIES.items()}


def decode_order(kind: Kind, body: bytes) -> Order[Any]:
    """Decodes an order. Raises KeyError for a kind that is no order, and msgspec's errors."""
    return _order_decoders[kind].decode(body) if body else ORDERS[kind]()


def decode_reply(kind: Kind, body: bytes) -> Any:
    """Decodes a reply. Raises KeyError for a kind that is no reply, and msgspec's errors."""
    return _reply_decoders[kind].decode(body) if body else None


def send(sock: socket.socket, order: Order[Any], fds: tuple[int, ...] = ()) -> None:
    """Sends an order with file descriptors. Raises OSError if the other side is gone."""
    _send(sock, order.kind, _encode(order) if order.__struct_fields__ else b"", fds)


def reply(sock: socket.socket, order: Order[R], contents: R, fds: tuple[int, ...] = ()) -> None:
    """Sends the reply to an order with file descriptors. Raises as `send`."""
    _send(sock, order.kind, b"" if contents is None else _encode(contents), fds)


def _send(sock: socket.socket, kind: Kind, body: bytes, fds: tuple[int, ...]) -> None:
    data = frames.encode(kind, 0, len(body)) + body
    if fds:
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        sent = sock.sendmsg([data], ancillary)
        data = data[sent:]
    sock.sendall(data)


def receive(sock: socket.socket) -> tuple[Order[Any], list[int]]:
    """The next order of the referee, and the descriptors that came with it.

    Raises EOFError if the referee is gone.
    """
    data, fds, _, _ = socket.recv_fds(sock, frames.SIZE, 8)
    kind, _, size = frames.decode(data + _exactly(sock, frames.SIZE - len(data)))
    return decode_order(kind, _exactly(sock, size)), list(fds)


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(min(1 << 20, size - len(data)))
        if not more:
            raise EOFError
        data += more
    return data
