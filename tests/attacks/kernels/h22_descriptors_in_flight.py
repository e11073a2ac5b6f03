# expect: PASS
"""Has as many descriptors in flight as it may: they count for its user, and the trusted ranks must still send theirs."""

import os
import socket

ours, held, sent = os.pipe()[0], [], 0
try:
    while True:
        held.append(socket.socketpair(type=socket.SOCK_DGRAM))
        for _ in range(8):
            socket.send_fds(held[-1][0], [b"x"], [ours] * 200)
            sent += 200
except OSError:
    assert sent < 4096, f"the attack worked: {sent} are in flight, as many as a trusted rank may have open"
