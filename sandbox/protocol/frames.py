"""Headers of the messages between the referee and a rank: 16 bytes each.

A header is followed by `value` bytes of a message (sandbox/protocol/messages.py), but only towards a rank and from a trusted
rank. From an untrusted rank come bare headers, whose `value` is a number: what it can forge may only make its own verdict worse.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

MAGIC = 0xA7E5
_FRAME = struct.Struct("<HBBIq")
SIZE = _FRAME.size
MAX_PAYLOAD = 32 << 20


class Kind(IntEnum):
    """The kind of a message. Below 64: an order to a rank; 64 to 79: a signal; 80 to 95: a failure; from 96: a trusted reply."""

    OPEN = 1
    MAP_ARENAS = 2
    LOAD = 3
    ARM = 4
    GO = 5
    RECOPY = 6
    DRAW = 7
    REVEAL = 8
    COMPARE = 9
    CHECK_POISON = 10
    PROBE = 11
    MAP_GATE = 12
    MEASURE_PEAKS = 13
    WAKE = 14
    FINISH = 15
    SYNC = 16
    MAKE_ARENAS = 17
    CHOOSE = 18
    TAKE = 19
    LOOK_AHEAD = 20
    DRAW_AGAIN = 21

    READY = 64
    OPENED = 65
    MAPPED = 66
    LOADED = 67
    ARMED = 68
    DONE = 69
    RECOPIED = 70
    COMPILING = 71
    COMPILED = 72
    QUEUED = 74
    """All calls of a gated batch are launched; the device waits for the referee."""
    GATED = 75
    """The gate's page is mapped."""
    AWAKE = 76
    CHOSEN = 78
    DELIVERED = 77
    """Outputs that are not sealed lie where they are compared; follows DONE at once."""

    SYNTAX = 80
    """The kernel does not compile; `value` is the line, the report holds the text. So for all below."""
    LOAD_FAILED = 81
    COMPILE_FAILED = 82
    RAISED = 83
    BAD_STRUCTURE = 84
    MUTATED = 85
    NO_MEMORY = 86
    DEVICE = 87
    REFUSED = 88
    """Trusted ranks only: sizes, world and dtype do not fit together."""
    BROKEN = 89
    """Trusted ranks only: the harness or the problem itself failed."""
    STALLED = 90
    """A wait of the kit gave up: a peer never came."""

    PROBED = 96
    ARENAS_MADE = 97
    DRAWN = 98
    REVEALED = 99
    COMPARED = 100
    POISON_CHECKED = 101
    PEAKS_MEASURED = 102
    SYNCED = 103
    TAKEN = 104
    LOOKED_AHEAD = 105
    DRAWN_AGAIN = 106


FAILURES = frozenset(kind for kind in Kind if Kind.SYNTAX <= kind < Kind.PROBED)


class Frame(NamedTuple):
    """One header, decoded."""

    kind: Kind
    arg: int
    value: int


class BadFrame(ValueError):
    """Sixteen bytes that are not a header."""


def encode(kind: int, arg: int = 0, value: int = 0) -> bytes:
    """The 16 bytes of a header."""
    return _FRAME.pack(MAGIC, kind, 0, arg, value)


def decode(data: bytes) -> Frame:
    """The header in 16 bytes. Raises BadFrame."""
    magic, kind, zero, arg, value = _FRAME.unpack(data)
    if magic != MAGIC or zero or kind not in Kind._value2member_map_:
        raise BadFrame(f"not a frame: {data.hex()}")
    return Frame(Kind(kind), arg, value)
