"""Where rows lie that arrive source by source and are kept expert by expert, as experts' inputs and outputs are.

from sandbox.kit import cuda
from sandbox.kit.blocks import chunks

lying = arrived[chunks.arrivals(sizes, arrived.shape[0])]     # sizes [W, E_l] int64, the rows of each chunk
cuda.compile(chunks.SOURCE + text)                            # there: read_chunks, then place_of for single rows
"""

from pathlib import Path

import torch

SOURCE = Path(__file__).with_name("chunks.cu").read_text()
MOST_EXPERTS = 1024
"""Chunks that a block's table holds; with more, a kernel takes library calls."""


def arrivals(sizes: torch.Tensor, total: int) -> torch.Tensor:
    """For every row as it lies, expert by expert, its number among those that arrive, source by source.

    sizes: int64 [W, E_l], the rows of each (source, expert); total: their sum. Returns int64 [total].
    """
    arrives = (sizes.flatten().cumsum(0) - sizes.flatten()).view_as(sizes).t().flatten()
    kept = sizes.t().flatten()
    lies = kept.cumsum(0) - kept
    numbers = torch.arange(total, device=sizes.device)
    return numbers + (arrives - lies).repeat_interleave(kept, output_size=total)
