"""Orders to the ranks of a plain loop, which is measured beside the arena, and their replies: JSON, one object a line.

Times are microseconds a call, one number for each repetition, on this rank alone.
"""

import msgspec

from sandbox.protocol.events import Setting


class LoopOrder(msgspec.Struct, tag_field="type", frozen=True):
    """Base of all orders. Every rank gets the same ones."""


class DrawInputs(LoopOrder, tag="draw_inputs", frozen=True):
    """Draw fresh inputs of a problem; those of the problem before are given up."""

    setting: Setting
    seeds: list[int]
    """One for each set of inputs."""
    most_bytes: int
    """That all inputs of a rank may take: where they would take more, fewer are drawn."""


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
    """How long the stream is occupied: queueing must take less."""


class LoopReply(msgspec.Struct, tag_field="type", frozen=True):
    """Base of all replies."""


class Joined(LoopReply, tag="joined", frozen=True):
    """The process group is up."""


class Opened(LoopReply, tag="opened", frozen=True):
    """The inputs are there."""

    inputs: int


class Times(LoopReply, tag="times", frozen=True):
    """What was asked for."""

    us: list[float]
    queued: bool = True
    """All calls of all repetitions were queued before the first one began."""


class Broken(LoopReply, tag="broken", frozen=True):
    """An order could not be carried out; this rank is of no further use."""

    text: str


AnyOrder = DrawInputs | TimeCalls | TimeQueued
AnyReply = Joined | Opened | Times | Broken

encode = msgspec.json.Encoder().encode
decode_order = msgspec.json.Decoder(AnyOrder).decode
decode_reply = msgspec.json.Decoder(AnyReply).decode
