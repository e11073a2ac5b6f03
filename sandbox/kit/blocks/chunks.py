"""Maps rows that arrive source by source to their places expert by expert, as in the inputs and outputs of experts.

from sandbox.kit import cuda
from sandbox.kit.blocks import chunks

lying = arrived[chunks.arrivals(sizes, arrived.shape[0])]     # sizes [W, E_l] int64, the rows of each chunk
cuda.compile(chunks.SOURCE + text)                            # there: read_chunks, then place_of for single rows
"""

import torch

from sandbox.kit.blocks import cuda_text

SOURCE = cuda_text("chunks")
MOST_EXPERTS = 1024
"""Most chunks in a block's table. With more, a kernel uses library calls instead."""


def arrivals(sizes: torch.Tensor, total: int) -> torch.Tensor:
    """The number of each row in the order of arrival (source by source), for the rows expert by expert.

    sizes: int64 [W, E_l], the rows of each (source, expert); total: their sum. Returns int64 [total].
    """
    arrives = (sizes.flatten().cumsum(0) - sizes.flatten()).view_as(sizes).t().flatten()
    kept = sizes.t().flatten()
    lies = kept.cumsum(0) - kept
    numbers = torch.arange(total, device=sizes.device)
    return numbers + (arrives - lies).repeat_interleave(kept, output_size=total)
