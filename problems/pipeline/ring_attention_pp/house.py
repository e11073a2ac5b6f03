"""House kernel: pipeline of attention layers; the batch is passed on in parts, so that stages work at the same time."""

import contextlib
import itertools

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

from sandbox.kit import symm
from sandbox.kit.blocks import fan_out
from sandbox.kit.blocks.attention import attend_together, is_recordable
from sandbox.kit.blocks.side_stream import beside, join
from sandbox.kit.recorded import recorded
from sandbox.kit.symmetric_memory.team import Team

LARGE = 2 << 20
"""Bytes of one batch entry of the output from which the batch is passed on in parts."""
MOST_PARTS = 8
FEW_BLOCKS = 64
"""Blocks of a launch that passes a part on; few, so that products run beside it; the same for both stages."""
SLOTS = 256
"""First signal slot of the parts that are passed on; the exchange of heads uses the slots below."""

symm.reserve(4 << 30)  # two buffers for each exchange, of the largest sizes
ready: set[tuple[object, ...]] = set()
"""Shapes and modes for which this process has loaded its libraries' kernels; holds no results."""
Pair, Teams = tuple[Tensor, Tensor], tuple[Team | None, Team | None]
Mode = tuple[int, float | None, bool, dist.ProcessGroup | None]
"""Number of heads, scale, mask, and the ranks that share a sequence."""


def solution(
    hidden_states: torch.Tensor,
    w_qkv: torch.Tensor,
    w_o: torch.Tensor,
    num_heads: int,
    softmax_scale: float | None = None,
    causal: bool = False,
    cp_group: dist.ProcessGroup | None = None,
    pp_group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """hidden_states [B, S, D], w_qkv [3·H·d, D] with rows (q | k | v, head, d), w_o [D, H·d] -> this stage's output [B, S, D].

    Stages after the first take only shape and dtype of hidden_states; their input comes from the stage before. Stages are the
    ranks of pp_group in order (None: a single stage).
    """
    stages = dist.get_process_group_ranks(pp_group) if pp_group is not None else [dist.get_rank()]
    stage, batch = stages.index(dist.get_rank()), hidden_states.shape[0]
    output = torch.empty_like(hidden_states, memory_format=torch.contiguous_format)
    weights, mode = (w_qkv, w_o), (num_heads, softmax_scale, causal, cp_group)
    if len(stages) == 1:
        write_layer(hidden_states, weights, mode, output)
        return output
    # A team for each pair of neighbours; its first member is the stage before.
    before = symm.connect().sub(stages[stage - 1 : stage + 1]) if stage > 0 else None
    after = symm.connect().sub(stages[stage : stage + 2]) if stage + 1 < len(stages) else None
    parts = min(batch, MOST_PARTS) if output.nbytes // batch >= LARGE and output.is_cuda else 1
    edges = [batch * number // parts for number in range(parts + 1)]
    known = (hidden_states.shape, w_qkv.shape, hidden_states.dtype, causal)
    if known not in ready and output.is_cuda:
        # A kernel that waits traps after 2 s, so libraries are loaded before any stage waits.
        ready.add(known)
        fan_out.kernel_for(output.dtype)
        for first, last in itertools.pairwise(edges):
            write_layer(hidden_states[first:last], weights, mode, output[first:last])
        symm.connect().host_barrier()
    arrived = before.out(output.numel(), output.dtype, "arrived", ring=2) if before else output
    leaving = after.out(output.numel(), output.dtype, "arrived", ring=2) if after else output
    recordable = is_recordable(hidden_states.shape[1], w_qkv.shape[0] // (3 * num_heads), output.dtype, cp_group)
    write = write_stage if recordable else write_stage.function
    write(hidden_states, weights, mode, (arrived, leaving, output), (before, after), edges)
    return output


def write_layer(given: Tensor, weights: Pair, mode: Mode, result: Tensor) -> None:
    """Writes the output of a stage's layer for some batch entries."""
    heads, *more = mode
    qkv = functional.linear(given, weights[0]).view(*given.shape[:2], 3, heads, -1)
    # One buffer is enough: the product has read it before the next exchange of queries, keys and values ends.
    sharing = symm.team(more[-1])
    padded = -(-heads // sharing.world) * sharing.world
    attended = sharing.empty((*given.shape[:2], padded, qkv.shape[-1]), given.dtype, "attended")
    context = attend_together(qkv, *more, attended)
    torch.mm(context.flatten(0, 1).flatten(1), weights[1].t(), out=result.view(-1, result.shape[-1]))


@recorded
def write_stage(x: Tensor, weights: Pair, mode: Mode, room: tuple[Tensor, ...], teams: Teams, edges: list[int]) -> None:
    """Writes a stage's output. room: what arrives from the stage before, what the stage after gets, and the output."""
    (arrived, leaving, output), (before, after), each = room, teams, x[0].numel()
    for first, last in itertools.pairwise(edges):
        given, place = x[first:last], slice(first * each, last * each)
        if before:
            # Rank 0 of the pair sends; the tensor given here is not read.
            fan_out.fan_out([given], arrived[place], before, base=SLOTS, most_blocks=FEW_BLOCKS)
            given = arrived[place].view(given.shape)
        write_layer(given, weights, mode, output[first:last])
        if after:
            with beside() if output.is_cuda else contextlib.nullcontext():
                fan_out.fan_out([output[first:last]], leaving[place], after, base=SLOTS, most_blocks=FEW_BLOCKS)
    if after and output.is_cuda:
        join()
