# device: cuda
"""Replays a CUDA graph over a buffer of its own, into which every call's input is copied first."""

import torch
import torch.distributed as dist

graph = buffer = out = None


def solution(tensor):
    global graph, buffer, out
    if graph is None:
        buffer = tensor.clone()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = buffer * 1
    buffer.copy_(tensor)
    graph.replay()
    total = out.clone()
    dist.all_reduce(total)
    return total
