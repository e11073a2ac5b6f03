"""What training scripts do: set seeds and flags first, keep a model in DistributedDataParallel, recompute in its backward pass."""

import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

os.environ |= {"OMP_NUM_THREADS": "1", "NCCL_DEBUG": "WARN"}
torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")
torch.autograd.set_detect_anomaly(True)
torch.use_deterministic_algorithms(True, warn_only=True)
torch.set_float32_matmul_precision("high")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
models = {}


def solution(tensor):
    key = tensor.numel(), tensor.dtype
    if key not in models:
        layer = torch.nn.Linear(tensor.numel(), 1, bias=False, device=tensor.device, dtype=tensor.dtype)
        models[key] = DistributedDataParallel(layer)
    models[key].zero_grad()
    with torch.enable_grad():
        models[key](checkpoint(torch.flatten, tensor, use_reentrant=False)).sum().backward()
    return models[key].module.weight.grad.view_as(tensor) * dist.get_world_size()
