"""Headers of the messages between the referee and a rank: 16 bytes each.

To a rank and from a trusted rank, `value` bytes of a message follow the header (sandbox/protocol/messages.py). An
untrusted rank sends bare headers, whose `value` is a number. Forged headers can only make its own verdict worse.

The starting gate is one page shared by the referee and all ranks of a world. Word 0 is the release, which every rank's stream
waits for. Word 16·(r+1) is rank r's completion, which its stream writes after the last call. Words hold epochs that only grow, so
they are never reset. A rank gains nothing by writing its word early: its outputs are read at that moment, and its DONE must
follow at once.
"""

import mmap
import os
import struct
import time
from enum import IntEnum

from sandbox.memory.host import output_arena

MAGIC = 0xA7E5
_FRAME = struct.Struct("<HBBIq")
SIZE = _FRAME.size
MAX_PAYLOAD = 32 << 20


class Kind(IntEnum):
    """The kind of a message. Below 32: an order to any rank; 32 to 63: an order to a trusted rank, and its reply; 64 to 79: a
    signal; from 80: a failure."""

    OPEN = 1
    MAP_ARENAS = 2
    LOAD = 3
    ARM = 4
    GO = 5
    RECOPY = 6
    MAP_GATE = 7
    WAKE = 8
    FINISH = 9
    CHOOSE = 10

    MEASURE_BASELINE = 32
    MAKE_ARENAS = 33
    DRAW = 34
    REVEAL = 35
    TAKE = 36
    COMPARE = 37
    CHECK_POISON = 38
    LOOK_AHEAD = 39
    DRAW_AGAIN = 40
    MEASURE_PEAKS = 41
    MEASURE_TRANSFERS = 42
    SYNC = 43

    READY = 64
    OPENED = 65
    MAPPED = 66
    LOADED = 67
    ARMED = 68
    DONE = 69
    """The batch is done. `value` is REUSES or LOST if the kernel returned the memory of an earlier result, else 0."""
    RECOPIED = 70
    COMPILING = 71
    COMPILED = 72
    QUEUED = 74
    """All calls of a gated batch are launched, and the device waits for the referee."""
    GATED = 75
    """The gate's page is mapped."""
    AWAKE = 76
    CHOSEN = 78
    DELIVERED = 77
    """Unsealed outputs are in the arena. It follows DONE at once."""

    SYNTAX = 80
    """The kernel does not compile. `value` is the line, and the report page has the text; the same for all kinds below."""
    LOAD_FAILED = 81
    COMPILE_FAILED = 82
    RAISED = 83
    BAD_STRUCTURE = 84
    MUTATED = 85
    NO_MEMORY = 86
    DEVICE = 87
    REFUSED = 88
    """Trusted ranks only: sizes, world or dtype are invalid."""
    BROKEN = 89
    """Trusted ranks only: the harness or the problem itself failed."""
    STALLED = 90
    """A wait of the kit timed out."""


REUSES, LOST = 1, 2
"""LOST: it was returned again before the earlier result was copied, so outputs of this batch are lost."""
REPLIED = frozenset(kind for kind in Kind if Kind.MEASURE_BASELINE <= kind < Kind.READY)
FAILURES = frozenset(kind for kind in Kind if kind >= Kind.SYNTAX)


def encode(kind: int, arg: int = 0, value: int = 0) -> bytes:
    """The 16 bytes of a header."""
    return _FRAME.pack(MAGIC, kind, 0, arg, value)


def decode(data: bytes) -> tuple[Kind, int, int]:
    """(kind, arg, value) of a header's 16 bytes. Raises ValueError."""
    magic, kind, zero, arg, value = _FRAME.unpack(data)
    if magic != MAGIC or zero or kind not in Kind._value2member_map_:
        raise ValueError(f"not a frame: {data.hex()}")
    return Kind(kind), arg, value


WORD = 64
_U32 = struct.Struct("<I")


class GatePage:
    """The referee's side of the gate."""

    def __init__(self, ranks: int) -> None:
        """Creates the page. `fd` goes to every rank of the world."""
        self.fd, self.page = output_arena(mmap.PAGESIZE, "pkb-gate")
        self.ranks = ranks
        self.epoch = 0

    def shut(self) -> int:
        """Closes the gate; returns the epoch that streams of the next batch wait for."""
        self.epoch += 1
        return self.epoch

    def open(self) -> int:
        """Releases all ranks at once; returns the time in perf_counter_ns."""
        started = time.perf_counter_ns()
        _U32.pack_into(self.page, 0, self.epoch)
        return started

    def finished(self) -> bool:
        """Whether the last calls of all ranks are done."""
        return all(_U32.unpack_from(self.page, WORD * (rank + 1))[0] >= self.epoch for rank in range(self.ranks))

    def wait(self, seconds: float) -> int | None:
        """Spins until all ranks are finished; returns the time in perf_counter_ns, or None after `seconds`."""
        until = time.perf_counter_ns() + int(seconds * 1e9)
        while not self.finished():
            if time.perf_counter_ns() > until:
                return None
        return time.perf_counter_ns()

    def close(self) -> None:
        """Unmaps the page."""
        self.page.close()
        os.close(self.fd)
