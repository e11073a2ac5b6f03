"""Blocks of house kernels: what several of them share. Any kernel may import them."""

import importlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch


def cuda_text(name: str) -> str:
    """The CUDA text of a block, which lies beside this file."""
    return Path(__file__).with_name(f"{name}.cu").read_text()


@cache
def example(name: str) -> Callable[..., torch.Tensor]:
    """The solution of `sandbox/kit/examples/<name>.py`, compiled at its first use, within a first call."""
    solution: Callable[..., torch.Tensor] = importlib.import_module(f"sandbox.kit.examples.{name}").solution
    return solution
