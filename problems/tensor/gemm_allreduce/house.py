"""House kernel: row-parallel GEMM; copy engines exchange blocks of rows beside the next product.

Each rank owns a block of rows. With two ranks, partial products of the other's block leave first. The own block comes last, in
chunks: each adds what has arrived, and is sent while the next is multiplied. With more ranks a round has rows of every block,
which are added up and sent to all during the next round. Small products are added up in one launch. CPU ranks add what they
read from the peers' memory.
"""

import itertools

import torch

from sandbox.kit import symm
from sandbox.kit.blocks import example
from sandbox.kit.blocks.columns import stream_barrier
from sandbox.kit.blocks.scattered_gemm import add_arrived, arrivals, scattered_product
from sandbox.kit.blocks.side_stream import beside, join
from sandbox.kit.blocks.sums import ONE_BARRIER, add_up, boxes, summed
from sandbox.kit.recorded import recorded

LARGE = 1 << 24
"""Bytes of the product from which GPUs exchange rows beside products."""

CHUNKS = 4
"""Chunks of a rank's own rows; nothing is multiplied while the last one is sent. With two or eight, a call took 2 % longer
on two H200."""
ROUNDS = (6, 4, 4, 2)
"""Rows of each round in sixteenths with more than two ranks. The last round is small: nothing runs beside its exchange."""
SLOT = 1001


def solution(A_local: torch.Tensor, B_local: torch.Tensor) -> torch.Tensor:
    """A_local [M, K], B_local [K, N] -> C [M, N] = Σ_r A_r B_r, on every rank."""
    shape, team = (A_local.shape[0], B_local.shape[1]), symm.connect()
    nbytes = shape[0] * shape[1] * A_local.element_size()
    if team.world == 1:
        return torch.mm(A_local, B_local)
    if not A_local.is_cuda:
        # Two alternating buffers: a slow peer may still read that of the previous call.
        product = team.out(shape, A_local.dtype, "product", ring=2)
        torch.mm(A_local, B_local, out=product)
        return summed(product, team)
    if nbytes >= LARGE and shape[0] % team.world == 0:
        result = team.out(shape, A_local.dtype, "result")
        more = arrivals(result[: shape[0] // team.world], team, team.world > 2)
        (in_rounds if team.world > 2 else in_blocks)(A_local.contiguous(), B_local, result, more, team)
        return result
    if (team.world - 1) * nbytes > ONE_BARRIER:
        return example("gemm_allreduce_cuda")(A_local, B_local)
    box = boxes(shape[0] * shape[1], A_local.dtype, team, on_gpu=True)
    product = A_local.new_empty(shape)
    at_once(A_local, B_local, product, box, team)
    return product


@recorded
def at_once(a: torch.Tensor, b: torch.Tensor, product: torch.Tensor, box: torch.Tensor, team: symm.Team) -> None:
    """Writes the summed product; every rank sends all of its own."""
    torch.mm(a, b, out=product)
    add_up(product, box, team)


@recorded
def in_blocks(
    a: torch.Tensor, b: torch.Tensor, result: torch.Tensor, more: torch.Tensor | None, team: symm.Team
) -> None:
    """Writes the summed product if W divides its number of rows."""
    rows = a.shape[0] // team.world
    own = result[team.rank * rows : (team.rank + 1) * rows]
    owned = [peer[rank * rows : (rank + 1) * rows] for rank, peer in enumerate(team.peers(result))]
    places = team.peers(own)

    def send(part: slice) -> None:
        with beside():
            for peer in team.order()[1:]:
                places[peer][part].copy_(own[part])

    scattered_product(a.view(team.world, rows, -1), b, owned, more, team, CHUNKS, send)
    with beside():
        stream_barrier(result, team, SLOT)
    join()


@recorded
def in_rounds(a: torch.Tensor, b: torch.Tensor, result: torch.Tensor, more: torch.Tensor, team: symm.Team) -> None:
    """Does the same with some rows of every block in each round, so that sums leave early and over all links."""
    rows, order = a.shape[0] // team.world, team.order()
    blocks, there = result.view(team.world, rows, -1), team.peers(more)
    own, places = blocks[team.rank], team.peers(blocks[team.rank])
    partial = a.new_empty((team.world - 1, rows, b.shape[1]))
    last = 0
    for sixteenths in itertools.accumulate(ROUNDS):
        part, last = slice(last, rows * sixteenths // 16), rows * sixteenths // 16
        for away, owner in enumerate(order[1:]):
            torch.mm(a[owner * rows :][part], b, out=partial[away, part])
        with beside():
            for away, owner in enumerate(order[1:]):  # so that no rank receives from two at a time
                there[owner][away, part].copy_(partial[away, part])
        torch.mm(a[team.rank * rows :][part], b, out=own[part])
        with beside():
            stream_barrier(result, team, SLOT - 1)
            add_arrived(own[part], more[:, part])
            for peer in order[1:]:
                places[peer][part].copy_(own[part])
    with beside():
        stream_barrier(result, team, SLOT)
    join()
