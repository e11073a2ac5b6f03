"""Two-shot all-reduce: a CUDA file stages the input in symmetric memory, Triton modules that import one another do the rest."""

from pathlib import Path

import torch
from kraken import comm

from sandbox.kit import cuda

from .staging import Staging

lib = cuda.compile(Path("stage.cu"))
staging = Staging()


def solution(tensor: torch.Tensor) -> torch.Tensor:
    buffer, handle = staging.of(tensor)
    lib.stage[256, 256](tensor, buffer, tensor.numel())
    return comm.two_shot_all_reduce(tensor, handle)
