"""Changes the split dimension of tensors in one launch: the exchanges of Ulysses.

    from sandbox.kit import symm
    from sandbox.kit.blocks.reshard import reshard

    heads = reshard(x, scatter_dim=2, gather_dim=1, team=symm.team(group))   # [B, S, A, D] -> [B, W·S, A/W, D]

Every rank reads its tensor once and stores each 16-byte word at its final place in its owner's memory, without packing. CPU ranks
copy their parts from the peers' memory.
"""

import math

import torch

from sandbox.kit import cuda
from sandbox.kit.blocks import cuda_text
from sandbox.kit.symmetric_memory.team import Team

kernel_for = cuda.lazy(cuda_text("reshard"))
BLOCKS, THREADS = 128, 512


def reshard(
    x: torch.Tensor, scatter_dim: int, gather_dim: int, team: Team, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Cuts x into W parts along scatter_dim, sends part d to member d, and joins the received parts along gather_dim.

    x: the same shape on all members, elements of 2, 4 or 8 bytes. A length that W does not divide is padded with zeros at its
    end. Returns a contiguous tensor with scatter_dim cut to ceil(length / W) and gather_dim W times as long; the two may be the
    same. A single member gets a copy of x. With more, on GPUs, it is a buffer of a ring (`Team.out`): a later call for
    the same shape writes to it again, but not the next one. Collective; uses the team's signal slots 0..127 with its
    own numbers (px_turn in px.cuh), so other kernels must not use these slots with epochs. Received parts are in the
    order of their senders. out: the buffer to use with more members; by default the next of a ring.
    """
    world = team.world
    if world == 1:
        return x.clone(memory_format=torch.contiguous_format)
    scatter_dim, gather_dim = scatter_dim % x.dim(), gather_dim % x.dim()
    length = x.shape[scatter_dim]
    part = -(-length // world)
    shape = list(x.shape)
    shape[scatter_dim] = part
    shape[gather_dim] *= world
    x = x.contiguous()
    if not x.is_cuda:
        return _copied(x, scatter_dim, gather_dim, part, shape, team)
    unit = cuda.unit_of(x)
    kernel = kernel_for(unit).reshard  # before the ranks exchange: see `cuda.lazy`
    result = team.out(shape, x.dtype, "reshard") if out is None else out
    inner = math.prod(x.shape[max(scatter_dim, gather_dim) + 1 :])
    outer = math.prod(x.shape[: min(scatter_dim, gather_dim)])
    between = math.prod(x.shape[min(scatter_dim, gather_dim) + 1 : max(scatter_dim, gather_dim)])
    across = scatter_dim > gather_dim
    if scatter_dim == gather_dim:
        across, rows, rows_in, width, width_in = True, 1, 1, part * inner, length * inner
    elif across:
        rows = x.shape[gather_dim] * between
        width, width_in, rows_in = part * inner, length * inner, rows
    else:
        rows, rows_in = part * between, length * between
        width = width_in = x.shape[gather_dim] * inner
    scale = x.element_size() // unit.itemsize
    words = outer * rows * -(-width * x.element_size() // 16)
    blocks = min(max(-(-words // THREADS), 1), BLOCKS)
    sizes = (outer, rows_in, width_in * scale, rows, width * scale, int(across))
    kernel[blocks, THREADS](team.px, x.data_ptr(), result.data_ptr(), *sizes)
    return result


def _copied(
    x: torch.Tensor, scatter_dim: int, gather_dim: int, part: int, shape: list[int], team: Team
) -> torch.Tensor:
    """The same for CPU ranks, which copy from the peers' memory."""
    result = x.new_zeros(shape)
    places = result.view(*shape[:gather_dim], team.world, shape[gather_dim] // team.world, *shape[gather_dim + 1 :])
    peers = team.peers(team.stage(x))
    team.barrier()
    first = min(team.rank * part, x.shape[scatter_dim])
    here = min(part, x.shape[scatter_dim] - first)
    for peer in team.order():
        place = places.select(gather_dim, peer).narrow(scatter_dim, 0, here)
        place.copy_(peers[peer].narrow(scatter_dim, first, here))
    return result
