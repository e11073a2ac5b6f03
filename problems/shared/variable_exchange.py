"""All-to-alls whose splits depend on data: first the counts, then the rows."""

import torch
import torch.distributed as dist


def bucket_counts(bucket: torch.Tensor, buckets: int) -> torch.Tensor:
    """bucket [n] int64 in 0..buckets-1 -> how many of each, [buckets] int64 (no host synchronisation)."""
    ones = torch.ones_like(bucket)
    return torch.zeros(buckets, dtype=torch.int64, device=bucket.device).scatter_add_(0, bucket, ones)


def exchange_counts(counts: torch.Tensor, group: dist.ProcessGroup | None) -> tuple[list[int], list[int]]:
    """counts [W] int64, rows for each rank -> (rows sent to each, rows received from each); one host
    synchronisation.
    """
    received = torch.empty_like(counts)
    dist.all_to_all_single(received, counts, group=group)
    sent, came = torch.stack((counts, received)).tolist()
    return sent, came


def exchange_rows(
    rows: torch.Tensor, sent: list[int], received: list[int], group: dist.ProcessGroup | None
) -> torch.Tensor:
    """rows [sum sent, ...], grouped by destination -> [sum received, ...], grouped by source."""
    output = rows.new_empty((sum(received), *rows.shape[1:]))
    dist.all_to_all_single(output, rows.contiguous(), received, sent, group=group)
    return output
