"""Orders to plain ranks, which are not part of the arena, and their replies: JSON, one object per line.

Plain ranks run a plain loop that is measured beside the arena, or call a block of the kit very often. Times are
microseconds per call, one number for each repetition, on this rank alone.
"""

import msgspec

from sandbox.protocol.events import Setting


class LoopOrder(msgspec.Struct, tag_field="type", frozen=True):
    """Base of all orders. Every rank gets the same ones."""


class DrawInputs(LoopOrder, tag="draw_inputs", frozen=True):
    """Draw fresh inputs of a problem, and release those of the previous problem."""

    setting: Setting
    seeds: list[int]
    """One for each set of inputs."""
    most_bytes: int
    """Limit for all inputs of a rank. Fewer sets are drawn if they would exceed it."""


class TimeCalls(LoopOrder, tag="time_calls", frozen=True):
    """Repeat: untimed calls, a barrier, then `calls` calls one after another and a wait for the device, by the wall clock."""

    repetitions: int
    calls: int
    warm: int
    """Untimed calls before each repetition."""


class TimeQueued(LoopOrder, tag="time_queued", frozen=True):
    """Repeat: occupy the stream, queue `calls` calls behind that, and take the time between two CUDA events around them."""

    repetitions: int
    calls: int
    wait_us: float
    """Microseconds for which the stream is occupied. Queueing must take less."""


class SoakBlock(LoopOrder, tag="soak_block", frozen=True):
    """Call a block of the kit, and compare every result."""

    block: str
    first: int
    """Number of the first call; numbers go on from order to order."""
    calls: int
    seed: int


class LoopReply(msgspec.Struct, tag_field="type", frozen=True):
    """Base of all replies."""


class Joined(LoopReply, tag="joined", frozen=True):
    """The process group is up."""


class InputsDrawn(LoopReply, tag="opened", frozen=True):
    """The inputs are drawn."""

    inputs: int


class Times(LoopReply, tag="times", frozen=True):
    """The measured times."""

    us: list[float]
    queued: bool = True
    """Whether all calls of all repetitions were queued before the first one began."""


class Soaked(LoopReply, tag="soaked", frozen=True):
    """The result of the calls of a block on this rank."""

    wrong: int
    """The number of wrong elements."""
    first_wrong: int
    """A wrong call, or one up to 64 calls before it; -1: no call was wrong."""


class Broken(LoopReply, tag="broken", frozen=True):
    """An order failed. This rank cannot be used any more."""

    text: str


AnyOrder = DrawInputs | TimeCalls | TimeQueued | SoakBlock
AnyReply = Joined | InputsDrawn | Times | Soaked | Broken

encode = msgspec.json.Encoder().encode
decode_order = msgspec.json.Decoder(AnyOrder).decode
decode_reply = msgspec.json.Decoder(AnyReply).decode
