"""Messages between referee and ranks: a struct per order, and per reply of a trusted rank.

An untrusted rank answers with bare headers (sandbox/protocol/frames.py).
"""

import array
import socket
from typing import ClassVar

import msgspec

from sandbox.memory.host import TensorPlace
from sandbox.protocol import frames
from sandbox.protocol.events import OutputError
from sandbox.protocol.frames import Kind
from sandbox.protocol.result import Transfers
from sandbox.protocol.verdict import Verdict


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


class RankMessage(msgspec.Struct, frozen=True):
    """Base of all messages. The header has `kind`, which identifies the struct."""

    kind: ClassVar[Kind]


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


class Order(RankMessage, frozen=True):
    """Base of all messages to a rank."""


class OpenProblem(Order, frozen=True):
    """Open a problem with a setting (collective). Answer: OPENED."""

    kind = Kind.OPEN
    folder: str
    sizes: dict[str, int]
    preset: str
    dtype: str


class MapArenas(Order, frozen=True):
    """Map the two descriptors that come with it: sealed inputs, outputs. Answer: MAPPED."""

    kind = Kind.MAP_ARENAS
    layout: SlotLayout


class LoadKernel(Order, frozen=True):
    """Import a kernel's text as a module. Answer: LOADED."""

    kind = Kind.LOAD
    name: str
    source: str
    folder: str = ""
    """The folder with all files of a kernel of several files, as the rank sees it; else empty."""
    sha256: str = ""
    """SHA-256 of such a kernel; else empty."""


class ChooseBatch(Order, frozen=True):
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


class Arm(Order, frozen=True):
    """Assemble the arguments of these iterations. Answer: ARMED; with a batch CHOSEN."""

    kind = Kind.ARM
    slots: list[SlotTable]
    checking: bool = False
    """Whether calls get private copies of the inputs, so that writes to them are found."""
    batch: ChooseBatch | None = None
    """A batch of these iterations that is chosen at once."""


class Go(Order, frozen=True):
    """Run the chosen batch. Answer: DONE; behind the gate QUEUED."""

    kind = Kind.GO


class FinishBatch(Order, frozen=True):
    """The gate is open: wait for the queued batch. Answer: DONE."""

    kind = Kind.FINISH


class Recopy(Order, frozen=True):
    """Copy the results of the last checked batch to their slots again. Answer: RECOPIED."""

    kind = Kind.RECOPY


class Wake(Order, frozen=True):
    """Do a trivial operation on the device. Answer: AWAKE."""

    kind = Kind.WAKE


class MapGate(Order, frozen=True):
    """Map the gate's page, whose descriptor comes with it. Answer: GATED."""

    kind = Kind.MAP_GATE


# --- orders to trusted ranks, each with its reply ---------------------------------------------------------


class Reply(RankMessage, frozen=True):
    """Base of all messages of a trusted rank."""


class MeasureBaseline(Order, frozen=True):
    """Draw iterations from these seeds, as many as needed, and run the baseline and the oracle on them (collective)."""

    kind = Kind.MEASURE_BASELINE
    seeds: list[int]
    arena_bytes: list[int]
    """Limits for the arenas of one side, the largest first. Each rank takes the first with which enough references fit."""
    references: int
    """Reference worlds that are enough."""


class BaselineMeasured(Reply, frozen=True):
    """The sizes of slots and the time of a baseline call. The rank keeps the calibrated errors."""

    kind = Kind.BASELINE_MEASURED
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


class MakeArenas(Order, frozen=True):
    """Make new arenas for one side of a run."""

    kind = Kind.MAKE_ARENAS
    layout: SlotLayout
    own: bool
    """Whether to make the trusted rank's own inputs, too."""
    side: int
    shared: bool = False
    """Whether the side reads the trusted rank's own inputs; only for worlds without a kernel."""


class ArenasMade(Reply, frozen=True):
    """The arenas are made. Two descriptors for `MapArenas` come with it."""

    kind = Kind.ARENAS_MADE


class Draw(Order, frozen=True):
    """Fill the first slots with new iterations, one per seed."""

    kind = Kind.DRAW
    seeds: list[int]
    intact: bool
    """Whether to check first that the output arenas are still poisoned."""
    sides: list[int]
    """The sides whose inputs are filled."""


class Drawn(Reply, frozen=True):
    """The places of each iteration's tensors on this rank, and the sides whose poison was overwritten."""

    kind = Kind.DRAWN
    tables: list[SlotTable]
    touched: list[int]


class Reveal(Order, frozen=True):
    """Complete the withheld inputs of some slots for a side, right before its GO."""

    kind = Kind.REVEAL
    side: int | None
    """None: only watch the device. For a side that shares the inputs, only their copy into the caches is repeated."""
    first: int = 0
    count: int = 0
    watch: bool = False
    """Whether to measure foreign work on the device."""
    rank: int | None = None
    """The only rank whose inputs are completed; None: all."""


class Revealed(Reply, frozen=True):
    """Longest foreign work on the device in microseconds; 0 if not watched."""

    kind = Kind.REVEALED
    foreign_us: float


class TakeOutputs(Order, frozen=True):
    """Copy a contender's outputs in some slots. Until the next draw the copies are compared."""

    kind = Kind.TAKE
    first: int
    count: int
    side: int


class OutputsTaken(Reply, frozen=True):
    """The outputs are copied."""

    kind = Kind.TAKEN


class CompareOutputs(Order, frozen=True):
    """Compare a contender's outputs in some slots (collective)."""

    kind = Kind.COMPARE
    slots: list[int]
    side: int
    against: int | None = None
    """The side that has run the baseline on these iterations; None: the trusted rank runs it now."""
    beside: list[int] = []
    """More slots, whose outputs are compared with the baseline's. Those that are farthest from it are compared in full, too."""


class Compared(Reply, frozen=True):
    """The comparison's findings: one for each right slot, and after them one for the first wrong slot, if there is any."""

    kind = Kind.COMPARED
    findings: list[OutputFinding]


class CheckPoison(Order, frozen=True):
    """Check that the output arenas are still poisoned."""

    kind = Kind.CHECK_POISON
    sides: list[int]


class PoisonChecked(Reply, frozen=True):
    """The sides whose poison was overwritten."""

    kind = Kind.POISON_CHECKED
    touched: list[int]


class LookAhead(Order, frozen=True):
    """Check a stopped batch for outputs of calls that have not begun, and for those of calls that have ended."""

    kind = Kind.LOOK_AHEAD
    side: int
    first: int
    """Slot of the first call that has not begun."""
    count: int
    """Number of these calls."""
    ended: list[int]
    """By rank: the slot of the last call that has ended, as this rank counts; -1: none, or outputs may be written later."""


class LookedAhead(Reply, frozen=True):
    """Whether a call that has not begun has an output, and whether the one that has ended has none."""

    kind = Kind.LOOKED_AHEAD
    written: bool
    missing: bool = False


TRIALS = 1009
"""A seed modulo this is the trial of an iteration, by which arguments vary that a kernel can read before GO."""


class DrawAgain(Order, frozen=True):
    """Draw an iteration from a seed to replace one whose arguments contenders have already assembled."""

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


class DrawnAgain(Reply, frozen=True):
    """Whether the new iteration fits: all of the slot that a contender can read is equal.

    That is shapes, and inputs that are not withheld. If a rank is drawn alone, its inputs must differ, too, and those
    of all others must be equal.
    """

    kind = Kind.DRAWN_AGAIN
    fits: bool


class MeasurePeaks(Order, frozen=True):
    """Measure the peaks of this machine (collective)."""

    kind = Kind.MEASURE_PEAKS


class PeaksMeasured(Reply, frozen=True):
    """Peaks of this rank. See sandbox.rank.devices.device.Device.peaks for the keys and units."""

    kind = Kind.PEAKS_MEASURED
    peaks: dict[str, float]


class MeasureTransfers(Order, frozen=True):
    """Time transfers between every two ranks (collective)."""

    kind = Kind.MEASURE_TRANSFERS
    backends: bool = False
    """Whether to time the ways of optional libraries, which may fail, instead of those that every device of this kind
    has."""


class TransfersMeasured(Reply, frozen=True):
    """The pairs whose first rank is this one."""

    kind = Kind.TRANSFERS_MEASURED
    transfers: Transfers


class Sync(Order, frozen=True):
    """Send a number back after all earlier answers."""

    kind = Kind.SYNC
    number: int


class Synced(Reply, frozen=True):
    """The number of the `Sync`."""

    kind = Kind.SYNCED
    number: int


ORDERS: dict[Kind, type[Order]] = {order.kind: order for order in Order.__subclasses__()}
REPLIES: dict[Kind, type[Reply]] = {reply.kind: reply for reply in Reply.__subclasses__()}

_encode = msgspec.msgpack.Encoder().encode
_order_decoders = {kind: msgspec.msgpack.Decoder(order) for kind, order in ORDERS.items()}
_reply_decoders = {kind: msgspec.msgpack.Decoder(reply) for kind, reply in REPLIES.items()}


def encode_body(message: RankMessage) -> bytes:
    """The bytes after the header; empty for a message without fields."""
    return _encode(message) if message.__struct_fields__ else b""


def decode_order(kind: Kind, body: bytes) -> Order:
    """Decodes an order. Raises KeyError for a kind that is no order, and msgspec's errors."""
    return _order_decoders[kind].decode(body) if body else ORDERS[kind]()


def decode_reply(kind: Kind, body: bytes) -> Reply:
    """Decodes a reply. Raises KeyError for a kind that is no reply, and msgspec's errors."""
    return _reply_decoders[kind].decode(body) if body else REPLIES[kind]()


def send(sock: socket.socket, message: RankMessage, fds: tuple[int, ...] = ()) -> None:
    """Sends a message with file descriptors. Raises OSError if the other side is gone."""
    body = encode_body(message)
    data = frames.encode(message.kind, 0, len(body)) + body
    if fds:
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        sent = sock.sendmsg([data], ancillary)
        data = data[sent:]
    sock.sendall(data)


def receive(sock: socket.socket) -> tuple[Order, list[int]]:
    """The next order of the referee, and the descriptors that came with it.

    Raises EOFError if the referee is gone.
    """
    data, fds, _, _ = socket.recv_fds(sock, frames.SIZE, 8)
    frame = frames.decode(data + _exactly(sock, frames.SIZE - len(data)))
    return decode_order(frame.kind, _exactly(sock, frame.value)), list(fds)


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(min(1 << 20, size - len(data)))
        if not more:
            raise EOFError
        data += more
    return data
