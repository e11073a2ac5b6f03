# expect: PROTOCOL
"""Says DONE to the referee without having done anything, many times."""

import gc
import socket

import torch.distributed as dist


def solution(tensor):
    for sock in gc.get_objects():
        if type(sock) is socket.socket:
            sock.send(bytes(range(16)) * 64)
    total = tensor.clone()
    dist.all_reduce(total)
    return total
