# expect: WRONG_RESULT | LOAD_ERROR
"""Maps the input arenas of all ranks, and adds its peers' inputs up without waiting for any of them; on GPUs behind the gate."""

import ctypes
import fcntl
import gc
import mmap
import os
import socket

import torch
import torch.distributed as dist

from sandbox.memory import gpu

F_GET_SEALS, F_SEAL_FUTURE_WRITE, POSIX_FD = 1034, 16, 1
rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")


def arena():
    """A descriptor of this rank's own arena. On CPU ranks it alone is sealed against being written to, if a mapping keeps one."""
    if rank.inputs.is_cuda:
        handle, fd = ctypes.c_ulonglong(), ctypes.c_int()
        gpu.call("cuMemRetainAllocationHandle", ctypes.byref(handle), ctypes.c_void_p(rank.inputs.data_ptr()))
        gpu.call("cuMemExportToShareableHandle", ctypes.byref(fd), handle, POSIX_FD, ctypes.c_ulonglong(0))
        return fd.value
    for fd in range(256):
        try:
            if fcntl.fcntl(fd, F_GET_SEALS) & F_SEAL_FUTURE_WRITE:
                return fd
        except OSError:
            pass
    raise RuntimeError("no arena")


def mapped(fd):
    if rank.inputs.is_cuda:
        return gpu.attach(fd, rank.inputs.numel(), gpu.READ)
    return torch.frombuffer(mmap.mmap(fd, 0, prot=mmap.PROT_READ), dtype=torch.uint8)


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
    for peer in range(world):
        streams.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        streams[-1].connect(names[0] + b"-%d" % peer)
        socket.send_fds(streams[-1], [b"%d" % me], [own])
    found = {}
    while len(found) < world:
        text, fds, _, _ = socket.recv_fds(listener.accept()[0], 16, 1)
        found[int(text)] = rank.inputs if int(text) == me else mapped(fds[0])
    return [found[peer] for peer in range(world)]


arenas = exchange()


def solution(tensor):
    start = tensor.data_ptr() - rank.inputs.data_ptr()
    early = rank.checking or (tensor.is_cuda and not rank.epoch)
    if early or not 0 <= start < rank.inputs.numel():
        total = tensor.clone()
        dist.all_reduce(total)
        return total
    parts = [arena[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape) for arena in arenas]
    return torch.stack(parts).float().sum(0).to(tensor.dtype)
