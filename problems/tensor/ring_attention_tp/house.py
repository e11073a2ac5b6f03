"""House kernel: attention layer; ranks exchange heads, not keys; partial outputs are added beside the last product."""

import itertools

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

from sandbox.kit import symm
from sandbox.kit.blocks.attention import attend_together, is_short
from sandbox.kit.blocks.side_stream import beside, join
from sandbox.kit.blocks.sums import BLOCKS, add_up, boxes
from sandbox.kit.recorded import recorded
from sandbox.kit.symmetric_memory.team import Team

LARGE = 8 << 20
"""Bytes of the output from which it is added up in chunks of rows, each while the next is multiplied."""
CHUNKS, FEW_BLOCKS = 4, 48
"""Number of chunks, and blocks that add one up. Nothing runs beside the last chunk, so it gets all blocks."""
SLOTS = 256
"""First signal slot of the sums; the exchange of heads uses the slots below."""
Mode = tuple[float | None, bool, dist.ProcessGroup | None]
"""Scale, mask, and the ranks that share the sequence."""

symm.reserve(4 << 30)  # two buffers for each exchange, of the largest sizes


def solution(
    hidden_states: torch.Tensor,
    w_qkv: torch.Tensor,
    w_o: torch.Tensor,
    num_heads: int,
    softmax_scale: float | None = None,
    causal: bool = False,
    tp_group: dist.ProcessGroup | None = None,
    cp_group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """hidden_states [B, S, D], w_qkv [3·H_l·d, D] with rows (q | k | v, head, d), w_o [D, H_l·d] -> [B, S, D].

    num_heads counts all heads; this rank has H_l = num_heads / tp of them. The result is the sum over the TP group of
    partial outputs in the run dtype, as in the baseline.
    """
    team = symm.team(tp_group)
    output = hidden_states.new_empty((hidden_states.shape[:2].numel(), w_o.shape[0]))
    box = boxes(output.numel(), output.dtype, team, output.is_cuda) if team.world > 1 else output
    heads = num_heads // team.world
    short = is_short(hidden_states.shape[1], w_qkv.shape[0] // (3 * heads), 1)
    write = write_output if short and dist.get_world_size(cp_group) == 1 else write_output.function
    write(hidden_states, w_qkv, w_o, (output, box), heads, (softmax_scale, causal, cp_group), team)
    return output.view(hidden_states.shape)


@recorded
def write_output(
    x: Tensor, w_qkv: Tensor, w_o: Tensor, room: tuple[Tensor, Tensor], heads: int, mode: Mode, team: Team
) -> None:
    """Writes the layer's output. room: the output [B·S, D] and the box of its sum; heads: this rank's."""
    qkv = functional.linear(x, w_qkv).view(*x.shape[:2], 3, heads, -1)
    context = attend_together(qkv, *mode).flatten(0, 1).flatten(1)  # [B·S, H_l·d]
    (output, box), (rows, width) = room, room[0].shape
    if team.world == 1 or output.nbytes < LARGE or not output.is_cuda:
        torch.mm(context, w_o.t(), out=output)
        if team.world > 1:
            add_up(output, box, team, base=SLOTS)
        return
    edges = [rows * number // CHUNKS for number in range(CHUNKS + 1)]
    for first, last in itertools.pairwise(edges):
        torch.mm(context[first:last], w_o.t(), out=output[first:last])
        with beside():
            blocks = BLOCKS if last == rows else FEW_BLOCKS
            add_up(output[first:last], box[:, first * width :], team, base=SLOTS, most_blocks=blocks)
    join()
