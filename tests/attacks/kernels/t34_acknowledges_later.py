# expect: BASELINE_DISTURBED | PASS
# not_faster: yes
# device: cpu
# twin: honest_own_sockets
"""Leaves hundreds of sockets with a byte to acknowledge: the operating system sends that later, while the baseline is timed."""

import gc
import socket

import torch.distributed as dist

PAIRS, TCP_QUICKACK = 400, 12
rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
say_done = rank.done
with socket.create_server(("127.0.0.1", 0), backlog=PAIRS) as listener:
    pairs = [(socket.create_connection(listener.getsockname()), listener.accept()[0]) for _ in range(PAIRS)]


def send_and_say_done():
    for sender, receiver in [] if rank.checking or rank.noop else pairs:
        receiver.send(b"x")  # an answer makes it wait for the next one before it acknowledges
        receiver.setsockopt(socket.IPPROTO_TCP, TCP_QUICKACK, 0)
        sender.send(b"x")
    say_done()


rank.done = send_and_say_done


def solution(tensor):
    dist.all_reduce(total := tensor.clone())
    return total
