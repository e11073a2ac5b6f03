# expect: BASELINE_DISTURBED | PASS
# not_faster: yes
# device: cpu
"""Leaves a large file in a cycle of closed sockets after every batch. A thread of the operating system frees it meanwhile."""

import gc
import os
import socket

BYTES = 160 << 20
rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
synchronize, done = rank.device.synchronize, rank.done
kept = []


def synchronize_and_build():
    synchronize()
    if kept or rank.checking or rank.noop or rank.begun[0] or rank.batch.stop == rank.batch.start:
        return
    file = os.memfd_create("ballast")
    os.posix_fallocate(file, 0, BYTES)
    kept.extend(socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
    socket.send_fds(kept[0], [b"x"], [file, kept[1].fileno()])
    os.close(file)


def done_and_free():
    done()
    while kept and not rank.checking and not rank.noop:
        kept.pop().close()


rank.device.synchronize, rank.done = synchronize_and_build, done_and_free
