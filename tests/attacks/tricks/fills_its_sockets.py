# effect: hides
"""Fills sockets and pipes, whose memory belongs to no process."""


def trick(call):
    import socket

    call.kept = []
    for _ in range(NUMBER % 64):
        with contextlib.suppress(OSError):
            pair = socket.socketpair()
            call.kept.append(pair)
            pair[0].setblocking(False)
            for _ in range(64):
                pair[0].send(bytes(1 << 16))
    return call
