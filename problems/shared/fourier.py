"""Re-sharding of complex fields between the two passes of a distributed 2-D Fourier transform."""

import torch
import torch.distributed as dist


def exchange_blocks(field: torch.Tensor, split: int, join: int, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """Cuts a complex field into W blocks along `split`, sends block d to rank d, joins along `join`.

    Returns the blocks in rank order; dimension `split` is W times shorter, dimension `join` W times longer.
    Travels as real pairs: communication libraries know no complex numbers.
    """
    world = dist.get_world_size(group)
    if world == 1:
        return field
    if field.shape[split] % world:
        raise ValueError(f"{field.shape[split]} rows along dimension {split} do not divide by {world} ranks")
    leaving = torch.stack(field.chunk(world, dim=split))
    arriving = torch.empty_like(leaving)
    dist.all_to_all_single(torch.view_as_real(arriving), torch.view_as_real(leaving), group=group)
    return torch.cat(arriving.unbind(0), dim=join)
