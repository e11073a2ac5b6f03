"""A stand-in for a model: answers with kernels of this file over the same protocol as a model would."""

from collections.abc import Iterator
from threading import Event
from typing import ClassVar

from arena.models import stand_in
from arena.models.stand_in import in_pieces

NAME = stand_in.NAME
PIECE = 12
"""Characters that are sent at once."""

GATHERS = """\
import torch
import torch.distributed as dist


def solution(tensor: torch.Tensor) -> torch.Tensor:
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
    return torch.stack(parts).float().sum(0).to(tensor.dtype)
"""
FORGETS_THE_BARRIER = """\
import torch

from sandbox.kit import symm


def solution(tensor: torch.Tensor) -> torch.Tensor:
    mine = symm.empty(tensor.shape, torch.float32)
    mine += tensor
    return sum(symm.peers(mine)).to(tensor.dtype)
"""
RIGHT = """\
import torch

from sandbox.kit import symm


def solution(tensor: torch.Tensor) -> torch.Tensor:
    peers = symm.peers(symm.stage(tensor))
    symm.barrier()
    total = peers[0].float()
    for peer in peers[1:]:
        total += peer
    return total.to(tensor.dtype)
"""
HALVES = """\
import torch

from sandbox.kit import symm


def solution(tensor: torch.Tensor) -> torch.Tensor:
    # Each rank adds up its own share of the rows, then reads the other shares where they were added up.
    rank, world = symm.rank, symm.world
    rows = torch.tensor_split(torch.arange(tensor.shape[0]), world)
    peers = symm.peers(symm.stage(tensor))
    symm.barrier()
    share = sum(peer[rows[rank]].float() for peer in peers)
"""


class Script:
    """Answers in turn, and how they are sent."""

    answers: ClassVar[list[str]] = []
    hold: ClassVar[Event | None] = None
    """The last answer does not end before this is set."""
    pause_s: ClassVar[float] = 0.0
    """Between two pieces."""


def pieces(prompt: str) -> Iterator[str]:
    """The next answer as it is sent."""
    text = f"```python\n{Script.answers.pop(0)}```\n"
    if Script.hold is None or Script.answers:
        yield from in_pieces(text, PIECE, Script.pause_s)
        return
    yield from in_pieces(text.removesuffix("```\n").rstrip(), PIECE, Script.pause_s)
    Script.hold.wait()


def serve(answers: list[str]) -> str:
    """Starts the stand-in with these answers; its address."""
    Script.answers = answers
    return f"http://127.0.0.1:{stand_in.serve(pieces).server_port}/v1"
