# expect: WRONG_RESULT
# twin: honest_graph
# device: cuda
"""Replays a CUDA graph that was captured over the first call's buffers."""

import torch

graph = None


def solution(tensor):
    global graph, out
    if graph is None:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = tensor * 1
    graph.replay()
    return out.clone()
