"""House kernel: strip convolution without the neighbours; rows that need them are computed beside it, in patches."""

import torch
import torch.distributed as dist
from torch.nn.functional import conv2d

from sandbox.kit import cuda, symm
from sandbox.kit.blocks.side_stream import beside, join
from sandbox.kit.symmetric_memory.team import Team

kernel_for = cuda.lazy(r"""
// Copies the rows of x at the strip's borders to the patches of this rank and its neighbours; a warp copies a plane.
// x: [planes][size]. patches: [2 (top, bottom)][planes][3 halo], symmetric. A top patch has the last `halo` elements of the strip
// above, then the first of this strip. A bottom patch has those of this strip from `start` on, then `halo` of the strip below.
extern "C" __global__ void __launch_bounds__(512) exchange(Px px, const TYPE* x, TYPE* patches, i64 planes, i64 size, i64 halo,
        i64 start) {
    const u32 turn = px_turn(px, blockIdx.x);
    const int lane = threadIdx.x % 32, warps = gridDim.x * blockDim.x / 32;
    for (i64 plane = (blockIdx.x * blockDim.x + threadIdx.x) / 32; plane < planes; plane += warps) {
        const TYPE* strip = x + plane * size;
        TYPE *top = patches + plane * 3 * halo, *bottom = top + planes * 3 * halo;
        if (px.rank > 0) px_move(px_at(px, px.rank - 1, bottom) + size - start, strip, halo, lane, 32);
        if (px.rank < px.world - 1) px_move(px_at(px, px.rank + 1, top), strip + size - halo, halo, lane, 32);
        px_move(top + halo, strip, 2 * halo, lane, 32);
        px_move(bottom, strip + start, size - start, lane, 32);
    }
    px_turn_barrier(px, blockIdx.x, turn);  // the neighbours' rows have arrived
}
""")
BLOCKS, THREADS = 16, 512
"""Few blocks, because blocks that wait for a neighbour take multiprocessors from the convolution beside them."""


def solution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: int = 1,
    padding: int = 1,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """x [B, C, h, w], weight [Co, C, k, k], bias [Co] -> this rank's strip [B, Co, h_out, w_out].

    The strip is extended by `padding` rows of either neighbour, or by zeros at the ends of the image. A convolution
    with zeros on all sides is wrong only in the result's rows near the borders, which are replaced.
    """
    team = symm.team(group)
    if team.world == 1 or padding == 0:
        return conv2d(x, weight, bias, stride, padding)
    x = x.contiguous()
    height, is_thin = x.shape[2], x.shape[2] < 2 * padding  # then some rows need both neighbours
    if not x.is_cuda or is_thin or weight.shape[2] != 2 * padding + 1 or x.element_size() not in (2, 4):
        return conv2d(extended(x, padding, team), weight, bias, stride, (0, padding))
    # Rows of the result before row `above` need the strip above, rows from `below` on need the strip below.
    above, below = -(-padding // stride), -(-(height - padding) // stride)
    with beside():
        patches = exchanged(x, padding, below * stride - padding, team)
        rows = conv2d(patches, weight, bias, stride, (0, padding))
    result = conv2d(x, weight, bias, stride, padding)
    join()
    top, bottom = rows.chunk(2)
    if team.rank > 0:
        result[:, :, :above] = top
    if team.rank < team.world - 1:
        result[:, :, below:] = bottom[:, :, : result.shape[2] - below]
    return result


def exchanged(x: torch.Tensor, padding: int, start: int, team: Team) -> torch.Tensor:
    """Patches [2 B, C, 3 padding, w]: B at the top of strip x [B, C, h, w], B at its bottom, from row `start` on."""
    kernel = kernel_for(cuda.unit_of(x)).exchange
    batch, channels, height, width = x.shape
    # Two are enough: a rank stores in call e+2 after the barrier of call e+1, and all ranks use the patches of call e
    # before that barrier.
    patches = team.out((2 * batch, channels, 3 * padding, width), x.dtype, "patches", ring=2)
    planes = batch * channels
    blocks = min(max(-(-32 * planes // THREADS), 1), BLOCKS)
    sizes = planes, height * width, padding * width, start * width
    kernel[blocks, THREADS](team.px, x.data_ptr(), patches.data_ptr(), *sizes)
    return patches


def extended(x: torch.Tensor, padding: int, team: Team) -> torch.Tensor:
    """Strip x [B, C, h, w] with `padding` rows of either neighbour, read in their memory: [B, C, h + 2 padding, w]."""
    peers = team.peers(team.stage(torch.stack((x[:, :, :padding], x[:, :, -padding:]))))
    team.barrier()
    outside = torch.zeros_like(x[:, :, :padding])
    above = peers[team.rank - 1][1] if team.rank > 0 else outside
    below = peers[team.rank + 1][0] if team.rank < team.world - 1 else outside
    return torch.cat((above, x, below), dim=2)
