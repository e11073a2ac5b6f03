"""Sends and receives messages and descriptors over a socket, blocking, from trusted senders."""

import array
import socket

from sandbox.protocol import frames
from sandbox.protocol.messages import Order, RankMessage, decode_order, encode_body


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
