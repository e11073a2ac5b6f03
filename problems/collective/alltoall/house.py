"""House kernel: all-to-all by stores or copies into the peers' results; CPU ranks copy from each peer's memory."""

import torch

from sandbox.kit import cuda, symm
from sandbox.kit.blocks import example
from sandbox.kit.blocks.columns import kernel_for, stream_barrier
from sandbox.kit.blocks.side_stream import beside, join
from sandbox.kit.recorded import recorded

LARGE = 32 << 20
"""Bytes of a rank's tensor from which copy engines are faster than multiprocessors."""
SLOT = 1000

symm.reserve(2 << 30)  # two results of the largest sizes


def solution(tensor: torch.Tensor) -> torch.Tensor:
    """tensor [W, M, N] -> [W, M, N]: slot s on rank r holds chunk r of rank s."""
    if tensor.is_cuda and tensor.nbytes >= LARGE and symm.world > 1:
        kernel_for(cuda.unit_of(tensor))  # before the ranks exchange: see `cuda.lazy`
        # Two results are enough: a rank writes in call e+2 only after all ranks have begun call e+1.
        result = symm.out(tensor.shape, tensor.dtype, "result", ring=2)
        copy_chunks(tensor.contiguous(), result, symm.connect())
        return result
    if tensor.is_cuda:
        return example("alltoall_push_cuda")(tensor)
    received = torch.empty_like(tensor, memory_format=torch.contiguous_format)
    peers = symm.peers(symm.stage(tensor))
    received[symm.rank].copy_(tensor[symm.rank])
    symm.barrier()
    for peer in symm.order()[1:]:
        received[peer].copy_(peers[peer][symm.rank])
    return received


@recorded
def copy_chunks(x: torch.Tensor, result: torch.Tensor, team: symm.Team) -> None:
    """Copies every chunk to its receiver by a copy engine, the own one beside the others."""
    places = team.peers(result)
    with beside():
        result[team.rank].copy_(x[team.rank])
    for peer in team.order()[1:]:  # so that no rank receives from two at a time
        places[peer][team.rank].copy_(x[peer])
    join()
    stream_barrier(result, team, SLOT)
