# device: cpu
"""Compiles C++ for the sum of what the ranks gathered."""

import torch
import torch.distributed as dist

from sandbox.kit import cpp

lib = cpp.compile(r"""
extern "C" void add(const float* x, const float* y, float* z, long n) {
    for (long i = 0; i < n; ++i) z[i] = x[i] + y[i];
}
""")


def solution(tensor):
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
    total = parts[0].float()
    for part in parts[1:]:
        out = torch.empty_like(total)
        lib.add(total, part.float(), out, out.numel())
        total = out
    return total.to(tensor.dtype)
