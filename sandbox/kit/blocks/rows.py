"""An all-to-all of rows with different counts per rank, in one launch.

    from sandbox.kit import symm
    from sandbox.kit.blocks.rows import all_to_all_rows

    got = all_to_all_rows(x, sent=[3, 0, 5, 1], received=[3, 2, 2, 4], team=symm.team(group))

The processes exchange the lists on the host, so that every row is stored directly at its final place.
"""

import math
from collections.abc import Sequence

import torch

from sandbox.kit import cuda
from sandbox.kit.blocks import cuda_text
from sandbox.kit.symmetric_memory.team import Team

kernel_for = cuda.lazy(cuda_text("rows"))
BLOCKS, THREADS = 128, 512


def all_to_all_rows(
    rows: torch.Tensor,
    sent: Sequence[int],
    received: Sequence[int],
    team: Team,
    ids: torch.Tensor | None = None,
    rotated: bool = False,
) -> torch.Tensor:
    """Sends sent[i] rows to member i and returns the received[i] rows that come from it, in the order of the lists.

    rows: [n, ...], elements of 2, 4 or 8 bytes; ids: int64 [sum(sent)], the rows to send (None: rows in their order).
    rotated: entry i of both lists stands for the member (rank + i) mod W. The members' lists agree. Returns
    [sum(received), ...] in symmetric memory of a ring of two. Collective, and the processes wait for one another, not
    for their GPUs; uses the team's signal slots 0..127 with their own numbers (px_turn in px.cuh).
    """
    world, rank, unit = team.world, team.rank, cuda.unit_of(rows)
    if rows.is_cuda:
        kernel_for(unit)  # before the ranks exchange: see `cuda.lazy`
    all_received = team.gather_numbers(*received)
    shape = rows.shape[1:]
    width = math.prod(shape)
    members = [(rank + i) % world if rotated else i for i in range(world)]
    places = [sum(all_received[peer][: (rank - peer) % world if rotated else rank]) for peer in members]
    largest = max(map(sum, all_received))
    room = team.room(largest * width, rows.dtype, "rows")
    result = room[: sum(received) * width].view(-1, *shape) if width else rows.new_empty((sum(received), *shape))
    first = [sum(sent[:i]) for i in range(world + 1)]
    rows = rows.contiguous()
    if not rows.is_cuda:
        chosen = rows if ids is None else rows[ids]
        spaces = team.peers(room)
        for i, peer in enumerate(members):
            place = spaces[peer][places[i] * width : (places[i] + sent[i]) * width]
            place.copy_(chosen[first[i] : first[i + 1]].reshape(-1))
        team.barrier()
        return result
    blocks = min(max(-(-largest * width * rows.element_size() // (16 * THREADS)), 1), BLOCKS)  # the same on all
    plan = [*first, *[0] * (10 - len(first)), *members, *[0] * (10 - world), *places]
    listed = 0 if ids is None else ids.contiguous()
    scale = rows.element_size() // unit.itemsize
    kernel_for(unit).send_rows[blocks, THREADS](team.px, rows.data_ptr(), listed, room.data_ptr(), width * scale, plan)
    return result
