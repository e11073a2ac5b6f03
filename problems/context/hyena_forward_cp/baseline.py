"""The Hyena operator under context parallelism: gate, exchange, convolve whole sequences by FFT, exchange,
gate.
"""

import torch
import torch.distributed as dist

from problems.shared.zigzag import natural_order, zigzag_shards


def _exchange(pieces: torch.Tensor, group: dist.ProcessGroup | None) -> torch.Tensor:
    """pieces [W, ...]: piece d goes to rank d -> [W, ...], piece s came from rank s."""
    leaving = pieces.contiguous()
    arrived = torch.empty_like(leaving)
    dist.all_to_all_single(arrived, leaving, group=group)
    return arrived


def _convolve(z: torch.Tensor, h: torch.Tensor, bias: torch.Tensor, group_dim: int) -> torch.Tensor:
    """z [B, d, L], h [g, T], bias [d] of one wide dtype -> circular convolution of length 2L, cut to L, plus
    bias * z.
    """
    length = z.shape[-1]
    spectrum = torch.fft.rfft(h, n=2 * length).repeat_interleave(group_dim, dim=0)
    y = torch.fft.irfft(torch.fft.rfft(z, n=2 * length) * spectrum, n=2 * length)[..., :length]
    return y + bias[:, None] * z


@torch.no_grad()
def solution(
    x1_seq: torch.Tensor,
    x2_seq: torch.Tensor,
    v_seq: torch.Tensor,
    h: torch.Tensor,
    conv_bias: torch.Tensor,
    num_groups: int,
    group_dim: int,
    group: dist.ProcessGroup | None = None,
    with_zigzag_splitting: bool = True,
) -> torch.Tensor:
    """x1_seq, x2_seq, v_seq [B, D, S], h [num_groups, T], conv_bias [D] -> [B, S, D], in the layout of the
    arguments.

    Per channel, over the whole sequence: x1 * (h conv (x2 * v) + bias * (x2 * v)); channel d uses filter d //
    group_dim. The convolution runs in float32 or wider. Zigzag: of 2W chunks rank r holds chunk r, then
    2W-1-r; otherwise shards in order.
    """
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    dtype = v_seq.dtype
    wide = torch.promote_types(dtype, torch.float32)
    z = _exchange((x2_seq * v_seq).unflatten(1, (world, -1)).movedim(1, 0), group).movedim(0, 2)
    z = natural_order(z, dim=2) if with_zigzag_splitting else z.flatten(2, 3)

    filters, channels = num_groups // world, num_groups // world * group_dim
    own_filters = h[rank * filters : (rank + 1) * filters].to(wide)
    own_bias = conv_bias[rank * channels : (rank + 1) * channels].to(wide)
    y = _convolve(z.to(wide), own_filters, own_bias, group_dim).to(dtype)

    shards = zigzag_shards(y, dim=2, world=world) if with_zigzag_splitting else y.unflatten(2, (world, -1))
    y = _exchange(shards.movedim(2, 0), group).movedim(0, 1).flatten(1, 2)
    return (x1_seq * y).transpose(1, 2).contiguous()
