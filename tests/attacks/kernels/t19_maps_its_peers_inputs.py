# expect: LOAD_ERROR
"""Maps the input arenas of all ranks, and adds its peers' inputs up without waiting for any of them."""

import fcntl
import gc
import mmap
import os
import socket

import torch
import torch.distributed as dist

F_GET_SEALS, F_SEAL_FUTURE_WRITE = 1034, 16
rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")


def arena():
    """The descriptor of this rank's own arena, if its mapping keeps one open. It alone is sealed against being written to."""
    for fd in range(256):
        try:
            if fcntl.fcntl(fd, F_GET_SEALS) & F_SEAL_FUTURE_WRITE:
                return fd
        except OSError:
            pass
    raise RuntimeError("no arena")


def exchange():
    """The arenas of all ranks: each sends its descriptor to all others over streams with abstract names, as every jail allows."""
    world, me = dist.get_world_size(), dist.get_rank()
    names = [b"\0pkb-t19-" + os.urandom(8).hex().encode()]
    dist.broadcast_object_list(names)
    own = arena()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(names[0] + b"-%d" % me)
    listener.listen(world)
    listener.settimeout(5.0)
    dist.barrier()
    streams = []
    for rank in range(world):
        streams.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        streams[-1].connect(names[0] + b"-%d" % rank)
        socket.send_fds(streams[-1], [b"%d" % me], [own])
    found = {}
    while len(found) < world:
        text, fds, _, _ = socket.recv_fds(listener.accept()[0], 16, 1)
        found[int(text)] = torch.frombuffer(mmap.mmap(fds[0], 0, prot=mmap.PROT_READ), dtype=torch.uint8)
    return [found[rank] for rank in range(world)]


arenas = exchange()


def solution(tensor):
    start = tensor.data_ptr() - rank.inputs.data_ptr()
    if rank.checking or not 0 <= start < rank.inputs.numel():
        total = tensor.clone()
        dist.all_reduce(total)
        return total
    parts = [arena[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape) for arena in arenas]
    return torch.stack(parts).float().sum(0).to(tensor.dtype)
