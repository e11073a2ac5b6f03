"""Exchanges its parts over sockets of its own between the ranks, and keeps a record of its calls in a file."""

import os
import socket
import tempfile

import torch
import torch.distributed as dist

world, me = dist.get_world_size(), dist.get_rank()
names = [os.urandom(8).hex()]
dist.broadcast_object_list(names)
listener = socket.socket(socket.AF_UNIX)
listener.bind(f"\0{names[0]}-{me}")
listener.listen(world)
dist.barrier()
outgoing = []
for peer in range(world):
    outgoing.append(socket.socket(socket.AF_UNIX))
    outgoing[-1].connect(f"\0{names[0]}-{peer}")
    outgoing[-1].sendall(bytes([me]))
incoming = [None] * world
for _ in range(world):
    stream, _ = listener.accept()
    incoming[stream.recv(1)[0]] = stream
record = tempfile.TemporaryFile("a+")


def received(stream, size):
    data = bytearray()
    while len(data) < size:
        data += stream.recv(size - len(data))
    return data


def solution(tensor):
    data = tensor.contiguous().view(-1).view(torch.uint8).cpu().numpy().tobytes()
    total = torch.zeros(tensor.shape, dtype=torch.float32)
    for at in range(0, len(data), 32768):  # less than a socket holds, so that nobody blocks
        piece = data[at : at + 32768]
        for stream in outgoing:
            stream.sendall(piece)
        for stream in incoming:
            part = torch.frombuffer(received(stream, len(piece)), dtype=tensor.dtype)
            first = at // tensor.element_size()
            total.view(-1)[first : first + part.numel()] += part.float()
    record.write(f"{tensor.shape}\n")
    return total.to(tensor.dtype).to(tensor.device)
