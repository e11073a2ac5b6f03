"""Returns views of a ring of eight buffers, one after another."""

import torch.distributed as dist

ring = None
turn = 0


def solution(tensor):
    global ring, turn
    if ring is None or ring.shape[1:] != tensor.shape:
        ring = tensor.new_empty(8, *tensor.shape)
    turn = (turn + 1) % 8
    view = ring[turn]
    view.copy_(tensor)
    dist.all_reduce(view)
    return view
