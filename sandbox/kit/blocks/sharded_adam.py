"""The tail of a sharded training step in one launch: reduce a slice of the gradient, apply Adam, store the results.

    from sandbox.kit import symm
    from sandbox.kit.blocks.sharded_adam import Adam, step_slice

    step_slice(symm.connect(), Adam(lr, beta1, beta2, eps, step), gradient[low:high], (w, m, v), (new_w, new_m, new_v), (0,))

A rank reads its slice of the gradient from all ranks, adds up in float32, and keeps the sum in registers until it has
computed weights and moments, which it stores on this rank or on every rank.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

from sandbox.kit import cuda
from sandbox.kit.blocks import cuda_text
from sandbox.kit.symmetric_memory.team import Team

kernel_for = cuda.lazy(cuda_text("sharded_adam"))
BLOCKS, THREADS = 128, 512
State = Sequence[torch.Tensor]


@dataclass(frozen=True)
class Adam:
    """The hyperparameters of one step; `step` counts from 1, and a weight decay other than 0 is AdamW's."""

    lr: float
    beta1: float
    beta2: float
    eps: float
    step: int
    weight_decay: float = 0.0

    def numbers(self) -> tuple[float, ...]:
        """beta1, 1 - beta1, beta2, 1 - beta2, factors of the bias corrections, eps, and lr times the weight decay."""
        step_size, root_scale = self.lr / (1 - self.beta1**self.step), (1 - self.beta2**self.step) ** -0.5
        betas = self.beta1, 1 - self.beta1, self.beta2, 1 - self.beta2
        return (*betas, step_size, root_scale, self.eps, self.lr * self.weight_decay)


def step_slice(
    team: Team,
    adam: Adam,
    gradient: torch.Tensor,
    old: State,
    updated: State,
    to_all: Collection[int] = (),
    base: int = 0,
    most_words: int | None = None,
    most_blocks: int = BLOCKS,
) -> None:
    """Applies Adam to one slice with the mean of all ranks' gradients.

    gradient: this rank's slice of a symmetric buffer, flat; the other ranks have gradients of the same elements there.
    old: weight and both moments, updated: their new values, all flat, of the same length and dtype. Those of `updated`
    whose number is in to_all are symmetric, and are stored at the same place of every rank. Slices may differ in length
    from rank to rank, and be empty; most_words: 16-byte words of the longest (None: of this one). base: the first of
    BLOCKS signal slots that only this call uses. Afterwards gradients may be overwritten. Collective.
    """
    if not gradient.is_cuda:
        _step_in_torch(team, adam, gradient, old, updated, to_all)
        return
    n = gradient.numel()
    if most_words is None:
        most_words = -(-gradient.nbytes // 16)
    blocks = min(max(-(-most_words // THREADS), 1), most_blocks, BLOCKS)
    flags = sum(1 << number for number in to_all)
    addresses = [tensor.data_ptr() for tensor in (gradient, *old, *updated)]
    kernel = kernel_for(gradient.dtype, WORLD=team.world).step_slice[blocks, THREADS]
    kernel(team.px, *addresses, n, flags, 1 / team.world, *adam.numbers(), base)


def _step_in_torch(
    team: Team, adam: Adam, gradient: torch.Tensor, old: State, updated: State, to_all: Collection[int]
) -> None:
    beta1, rest1, beta2, rest2, step_size, root_scale, eps, decay = adam.numbers()
    parts = team.peers(gradient) if gradient.numel() else []
    team.barrier()
    total = torch.zeros(gradient.shape, dtype=torch.float32)
    for part in parts:
        total += part
    total /= team.world
    weight, mean, square = (tensor.float() for tensor in old)
    mean = beta1 * mean + rest1 * total
    square = beta2 * square + rest2 * total.square()
    weight = weight - step_size * mean / (square.sqrt() * root_scale + eps) - decay * weight
    for number, (target, value) in enumerate(zip(updated, (weight, mean, square), strict=True)):
        for place in team.peers(target) if number in to_all and target.numel() else [target]:
            place.copy_(value)
    team.barrier()
