# expect: PASS
"""Looks for a second address of the judge's inputs, where a result that is an argument would not be refused."""

import ctypes
import mmap

import torch
import torch.distributed as dist

libc = ctypes.CDLL(None, use_errno=True)
libc.mremap.restype = ctypes.c_void_p
libc.mremap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int)
FAILED, MAY_MOVE, DONT_UNMAP = ctypes.c_void_p(-1).value, 1, 4


def has_second_address(tensor):
    if tensor.is_cuda:
        return False
    page = tensor.data_ptr() & -mmap.PAGESIZE
    size = -(-tensor.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    tries = ((0, size, MAY_MOVE), (size, size, MAY_MOVE | DONT_UNMAP))
    found = [libc.mremap(page, old, new, flags) for old, new, flags in tries]
    found.append(0 if libc.remap_file_pages(ctypes.c_void_p(page), size, 0, 0, 0) == 0 else FAILED)
    return any(each != FAILED for each in found)


def solution(tensor):
    if has_second_address(tensor):
        return torch.zeros_like(tensor)
    total = tensor.clone()
    dist.all_reduce(total)
    return total
