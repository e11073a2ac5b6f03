"""Messages between the referee and the ranks: one struct for each order to a rank, and for each reply of a trusted rank.

An untrusted rank never sends one of these: it answers with bare headers (sandbox/protocol/frames.py).
"""

from typing import ClassVar

import msgspec

from sandbox.memory.places import TensorPlace
from sandbox.protocol.finding import OutputFinding
from sandbox.protocol.frames import Kind


class RankMessage(msgspec.Struct, frozen=True):
    """Base of all messages. `kind` stands in the header and names the struct."""

    kind: ClassVar[Kind]


class SlotLayout(msgspec.Struct, frozen=True):
    """How the arenas of a setting are divided: the same for every rank."""

    in_bytes: int
    """Of one input slot."""
    out_bytes: int
    """Of one output slot."""
    room: int
    """Tensors that the header of an output slot can describe."""
    slots: int
    """Iterations that an arena holds."""
    sealed: bool
    """Whether arenas are memory that others map with the rights they are given."""


class SlotTable(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One drawn iteration: the number of its slot and where the tensors lie in it."""

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


class Arm(Order, frozen=True):
    """Assemble the arguments of these iterations. Answer: ARMED."""

    kind = Kind.ARM
    slots: list[SlotTable]
    checking: bool = False
    """Whether the calls get private copies of the inputs, so that a write to them is found."""


class ChooseBatch(Order, frozen=True):
    """Choose the armed iterations that the next GO runs, and make calls that nobody times. Answer: CHOSEN."""

    kind = Kind.CHOOSE
    first: int
    """Slot of the first iteration."""
    count: int
    """Iterations, in slots one after another; 0 for a batch without calls."""
    warm: int = 0
    """Calls on kept inputs before the answer, so that every batch starts with warm caches."""
    noop: bool = False
    """Return a kept result in place of each call: such a batch shows what the harness itself takes."""
    epoch: int = 0
    """The starting gate's, for a batch that is queued behind it; 0: the batch runs at GO."""


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
    """Do a trivial operation, so that this process and its context are the ones that run. Answer: AWAKE."""

    kind = Kind.WAKE


class MapGate(Order, frozen=True):
    """Map the starting gate's page, whose descriptor comes with it. Answer: GATED."""

    kind = Kind.MAP_GATE


# --- orders to trusted ranks, each with its reply ---------------------------------------------------------


class Reply(RankMessage, frozen=True):
    """Base of all messages of a trusted rank."""


class Probe(Order, frozen=True):
    """Draw an iteration of each seed, as many as are needed, and run the baseline and the oracle on it (collective)."""

    kind = Kind.PROBE
    seeds: list[int]
    arena_bytes: int
    """What the arenas of one side may take."""


class Probed(Reply, frozen=True):
    """How large slots must be, and how long a call of the baseline takes. Its errors stay with the rank."""

    kind = Kind.PROBED
    in_bytes: int
    out_bytes: int
    room: int
    seconds: float
    sealed: bool
    varies: bool = False
    """Whether matrix products or convolutions had other shapes in another iteration."""
    references: int | None = None
    """Worlds that run the baseline which a device's memory has room for; None: there is no limit."""


class MakeArenas(Order, frozen=True):
    """Make the arenas of one side of a run, in place of those that it had."""

    kind = Kind.MAKE_ARENAS
    layout: SlotLayout
    own: bool
    """Whether the trusted rank's own inputs are made as well."""
    side: int
    shared: bool = False
    """Whether the side reads the trusted rank's own inputs, as worlds that run no kernel may: nothing is copied for it."""


class ArenasMade(Reply, frozen=True):
    """Comes with two descriptors, for the contender's `MapArenas`."""

    kind = Kind.ARENAS_MADE


class Draw(Order, frozen=True):
    """Fill the first slots with fresh iterations, one of each seed."""

    kind = Kind.DRAW
    seeds: list[int]
    intact: bool
    """Whether to look first if the output arenas are still poisoned."""
    sides: list[int]
    """Whose inputs are filled."""


class Drawn(Reply, frozen=True):
    """Where the tensors of each iteration lie on this rank, and the sides whose poison was overwritten."""

    kind = Kind.DRAWN
    tables: list[SlotTable]
    touched: list[int]


class Reveal(Order, frozen=True):
    """Complete the inputs of some slots for a side, the last thing before its GO."""

    kind = Kind.REVEAL
    side: int | None
    """None: only look at the device. Of a side that shares the inputs, only the way into the caches is repeated."""
    first: int = 0
    count: int = 0
    watch: bool = False
    """Whether to look for work of others on the device."""
    rank: int | None = None
    """The one rank whose inputs are completed; None: all."""


class Revealed(Reply, frozen=True):
    """The longest moment in microseconds in which other work had the device; 0 where nobody looked."""

    kind = Kind.REVEALED
    foreign_us: float


class TakeOutputs(Order, frozen=True):
    """Copy a contender's outputs in some slots now that they are due: until the next draw the copies are what is compared."""

    kind = Kind.TAKE
    first: int
    count: int
    side: int


class OutputsTaken(Reply, frozen=True):
    """They are copied."""

    kind = Kind.TAKEN


class CompareOutputs(Order, frozen=True):
    """Compare a contender's outputs in some slots (collective)."""

    kind = Kind.COMPARE
    slots: list[int]
    side: int
    against: int | None = None
    """The side that has run the baseline on these iterations; None: the trusted rank runs it now."""
    beside: list[int] = []
    """More slots: their outputs are held beside the baseline's. The farthest of those that are not near are compared, too."""


class Compared(Reply, frozen=True):
    """One finding for each slot that was compared, those that were asked for first."""

    kind = Kind.COMPARED
    findings: list[OutputFinding]


class CheckPoison(Order, frozen=True):
    """See whether anything was written to a poisoned output arena."""

    kind = Kind.CHECK_POISON
    sides: list[int]


class PoisonChecked(Reply, frozen=True):
    """The sides whose poison was overwritten."""

    kind = Kind.POISON_CHECKED
    touched: list[int]


class LookAhead(Order, frozen=True):
    """Look whether a stopped batch has written outputs of calls that have not begun."""

    kind = Kind.LOOK_AHEAD
    side: int
    first: int
    """Slot of the first such call."""
    count: int


class LookedAhead(Reply, frozen=True):
    """Whether one of these slots has an output."""

    kind = Kind.LOOKED_AHEAD
    written: bool


class DrawAgain(Order, frozen=True):
    """Draw an iteration of each seed, for the place of one that contenders have the arguments of."""

    kind = Kind.DRAW_AGAIN
    slot: int
    seeds: list[int]
    replace: bool = False
    """Whether the trusted rank's own inputs are replaced, by the iteration of the only seed."""


class DrawnAgain(Reply, frozen=True):
    """Of each seed, whether all that a contender has seen of the slot stays: shapes, and inputs that are not withheld."""

    kind = Kind.DRAWN_AGAIN
    fits: list[bool]


class MeasurePeaks(Order, frozen=True):
    """Measure what this machine can do at the most (collective)."""

    kind = Kind.MEASURE_PEAKS


class PeaksMeasured(Reply, frozen=True):
    """Peaks of this rank. See sandbox.rank.calibration for the keys and units."""

    kind = Kind.PEAKS_MEASURED
    peaks: dict[str, float]


class Sync(Order, frozen=True):
    """Send a number back, after every answer that was still due."""

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
    """What follows the header; nothing for a message without fields."""
    return _encode(message) if message.__struct_fields__ else b""


def decode_order(kind: Kind, body: bytes) -> Order:
    """The order of a header and what follows it. Raises KeyError for a kind that is no order, and msgspec's errors."""
    return _order_decoders[kind].decode(body) if body else ORDERS[kind]()


def decode_reply(kind: Kind, body: bytes) -> Reply:
    """The reply of a header and what follows it. Raises KeyError for a kind that is no reply, and msgspec's errors."""
    return _reply_decoders[kind].decode(body) if body else REPLIES[kind]()
