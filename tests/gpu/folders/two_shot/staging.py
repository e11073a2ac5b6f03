import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem


class Staging:
    """Symmetric memory for the last requested size and dtype."""

    def __init__(self):
        self.key = self.buffer = self.handle = None

    def of(self, tensor):
        key = (tensor.numel(), tensor.dtype)
        if key != self.key:
            self.buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
            self.handle = symm_mem.rendezvous(self.buffer, dist.group.WORLD)
            self.key = key
        return self.buffer, self.handle
