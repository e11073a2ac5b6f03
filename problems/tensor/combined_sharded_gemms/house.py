"""House kernel: MLP on exchanged rows; the exchange stores rows in their final order, so no copy follows it."""

import torch

from sandbox.kit import cuda, symm
from sandbox.kit.blocks.reshard import kernel_for, reshard
from sandbox.kit.recorded import recorded
from sandbox.kit.symmetric_memory.team import Team

symm.reserve(2 << 30)  # rings of the largest sizes


def solution(x_local: torch.Tensor, W1: torch.Tensor, W2: torch.Tensor) -> torch.Tensor:
    """x_local [M, H/W], W1 [H, F], W2 [F, H] -> [M/W, H]: silu(x·W1)·W2 for row block r of the joined x, on rank r."""
    team = symm.connect()
    if x_local.is_cuda:
        kernel_for(cuda.unit_of(x_local))  # before the ranks exchange: see `cuda.lazy`
    result = x_local.new_empty((x_local.shape[0] // team.world, W2.shape[1]))
    # Two buffers are enough: a rank writes in call e+2 only after all ranks have begun call e+1.
    rows = team.out((len(result), len(W1)), x_local.dtype, "rows", ring=2)
    write_rows(x_local, W1, W2, rows, result, team)
    return result


@recorded
def write_rows(
    x: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor, rows: torch.Tensor, result: torch.Tensor, team: Team
) -> None:
    """Writes the result. rows: where this rank's rows of x arrive."""
    hidden = torch.mm(reshard(x, 0, 1, team, rows), w1)
    torch.mm(torch.nn.functional.silu(hidden, inplace=True), w2, out=result)
