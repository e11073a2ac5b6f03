"""Its solution is a torch.nn.Module with a buffer and a forward hook, under inference mode."""

import torch
import torch.distributed as dist


class Sum(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    @torch.inference_mode()
    def forward(self, tensor):
        self.calls += 1
        total = tensor.clone()
        dist.all_reduce(total)
        return total


solution = Sum().eval()
solution.register_forward_hook(lambda module, inputs, output: None)
