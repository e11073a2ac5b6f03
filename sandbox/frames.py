"""Fixed 16-byte frames between the referee and a rank.

Frames from an untrusted rank carry no payload: whatever it can forge here may only make its own verdict worse. Frames to a
rank, and from trusted ranks, may be followed by `value` bytes of JSON.
"""

import array
import json
import socket
import struct
from enum import IntEnum
from typing import Any, NamedTuple

MAGIC = 0xA7E5
_FRAME = struct.Struct("<HBBIq")
SIZE = _FRAME.size
MAX_PAYLOAD = 32 << 20


class Kind(IntEnum):
    """What a frame says. Below 64: to a rank; from 64: from a rank."""

    OPEN = 1
    ARENAS = 2
    LOAD = 3
    ARM = 4
    GO = 5
    RECOPY = 6
    DRAW = 7
    REVEAL = 8
    JUDGE = 9
    INTACT = 10
    PROBE = 11
    GATE = 12
    PEAKS = 13
    WAKE = 14
    FINISH = 15
    """To a rank that has queued a batch: the gate is open; wait for the batch and say DONE."""
    SYNC = 16
    """To a trusted rank: say this number back, after all that you still had to say."""

    READY = 64
    OPENED = 65
    MAPPED = 66
    LOADED = 67
    ARMED = 68
    DONE = 69
    RECOPIED = 70
    COMPILING = 71
    COMPILED = 72
    REPLY = 73
    """A trusted rank's answer, with a payload."""
    QUEUED = 74
    """All calls of a gated batch are launched; the device waits for the referee."""
    GATED = 75
    """The gate's page is mapped."""
    AWAKE = 76
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


FAILURES = frozenset(kind for kind in Kind if kind >= Kind.SYNTAX)


class Frame(NamedTuple):
    """One frame, decoded."""

    kind: int
    arg: int
    value: int


class BadFrame(ValueError):
    """Sixteen bytes that are not a frame."""


def encode(kind: int, arg: int = 0, value: int = 0) -> bytes:
    """The 16 bytes of a frame."""
    return _FRAME.pack(MAGIC, kind, 0, arg, value)


def decode(data: bytes) -> Frame:
    """The frame in 16 bytes. Raises BadFrame."""
    magic, kind, zero, arg, value = _FRAME.unpack(data)
    if magic != MAGIC or zero or kind not in Kind._value2member_map_:
        raise BadFrame(f"not a frame: {data.hex()}")
    return Frame(kind, arg, value)


def send(
    sock: socket.socket, kind: int, payload: Any = None, arg: int = 0, fds: tuple[int, ...] = ()
) -> None:
    """Sends a frame, its JSON payload and file descriptors (blocking)."""
    body = b"" if payload is None else json.dumps(payload).encode()
    data = encode(kind, arg, len(body)) + body
    if fds:
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        sent = sock.sendmsg([data], ancillary)
        data = data[sent:]
    sock.sendall(data)


def receive(sock: socket.socket) -> tuple[Frame, Any, list[int]]:
    """Receives a frame with its payload and file descriptors (blocking; the sender is trusted).

    Raises EOFError when the other side is gone.
    """
    data, fds, _, _ = socket.recv_fds(sock, SIZE, 8)
    while len(data) < SIZE:
        more = sock.recv(SIZE - len(data))
        if not more:
            raise EOFError
        data += more
    frame = decode(data)
    body = b""
    while len(body) < frame.value:
        more = sock.recv(min(1 << 20, frame.value - len(body)))
        if not more:
            raise EOFError
        body += more
    return frame, json.loads(body) if body else None, list(fds)
