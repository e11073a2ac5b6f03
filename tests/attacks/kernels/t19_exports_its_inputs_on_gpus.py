# expect: WRONG_RESULT | LOAD_ERROR
# device: cuda
"""Maps its peers' input arenas by descriptors of the driver, and adds their inputs up behind the gate without waiting for them."""

import ctypes
import gc
import os
import socket

import torch
import torch.distributed as dist

from sandbox.memory import gpu

POSIX_FD = 1
rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")


def exported():
    """A descriptor of the memory behind this rank's inputs."""
    handle, fd = ctypes.c_ulonglong(), ctypes.c_int()
    gpu.call("cuMemRetainAllocationHandle", ctypes.byref(handle), ctypes.c_void_p(rank.inputs.data_ptr()))
    gpu.call("cuMemExportToShareableHandle", ctypes.byref(fd), handle, POSIX_FD, ctypes.c_ulonglong(0))
    return fd.value


def exchange():
    """The peers' arenas: each rank sends its descriptor to all others over streams with abstract names."""
    world, me = dist.get_world_size(), dist.get_rank()
    names = [b"\0pkb-t19-" + os.urandom(8).hex().encode()]
    dist.broadcast_object_list(names)
    own = exported()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(names[0] + b"-%d" % me)
    listener.listen(world)
    listener.settimeout(5.0)
    dist.barrier()
    streams = []
    for peer in range(world):
        streams.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        streams[-1].connect(names[0] + b"-%d" % peer)
        socket.send_fds(streams[-1], [b"%d" % me], [own])
    found = {}
    while len(found) < world:
        text, fds, _, _ = socket.recv_fds(listener.accept()[0], 16, 1)
        if int(text) == me:
            found[me] = rank.inputs
        else:
            found[int(text)] = gpu.attach(fds[0], rank.inputs.numel(), gpu.READ)
    return [found[peer] for peer in range(world)]


arenas = exchange()


def solution(tensor):
    start = tensor.data_ptr() - rank.inputs.data_ptr()
    if not rank.epoch or rank.checking or not 0 <= start < rank.inputs.numel():
        total = tensor.clone()
        dist.all_reduce(total)
        return total
    parts = [arena[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape) for arena in arenas]
    return torch.stack(parts).float().sum(0).to(tensor.dtype)
