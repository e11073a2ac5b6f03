# expect: WRONG_RESULT
"""Sends one row and one column, which is all there is to inputs of rank one."""

import torch.distributed as dist


def solution(tensor):
    row, column = tensor[0].clone(), tensor[:, 0].clone()
    dist.all_reduce(row)
    dist.all_reduce(column)
    return (column[:, None].float() * row[None].float() / row[0].float()).to(tensor.dtype)
