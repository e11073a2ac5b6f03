"""CUDA text for 8-bit codes, 16 elements at a time, and the scale of FP8 delayed scaling.

    from sandbox.kit.blocks.quantisation import E4M3, SIXTEEN, divides_by_product, next_scale

    history, scale = next_scale(values, amax_history)      # one launch, without waiting for the GPU
    module = cuda.compile(SIXTEEN + E4M3 + SOURCE)

A lane with 16 elements writes their 8-bit codes with one 16-byte store.
"""

import functools

import torch

from sandbox.kit import cuda
from sandbox.kit.blocks import cuda_text

SIXTEEN, E4M3 = cuda_text("quantisation_sixteen"), cuda_text("quantisation_e4m3")
kernel_for = cuda.lazy(SIXTEEN + cuda_text("quantisation"))
BLOCKS, THREADS = 264, 512
LARGEST_CODE = 448.0
SMALLEST_MAXIMUM = 1e-12


@functools.cache
def divides_by_product(device: torch.device) -> bool:
    """Whether torch divides a tensor of this device by a number as on GPUs: it multiplies by the rounded reciprocal.

    The host waits for the device at the first call.
    """
    values = torch.arange(128, 256, dtype=torch.float32)
    return not torch.equal((values.to(device) / LARGEST_CODE).cpu(), values / LARGEST_CODE)


@functools.cache
def _counter(device: torch.device) -> torch.Tensor:
    return torch.zeros(1, dtype=torch.int32, device=device)  # zero again after every launch


def next_scale(
    values: torch.Tensor, history: torch.Tensor, rolled: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """(history after appending max |values| and dropping its oldest entry, [H] bfloat16; scale [1] float32).

    values: any shape, bfloat16, float16 or float32; history: [H] bfloat16. The scale is the largest entry of the new history,
    at least 1e-12, over 448: so it may be a little below max |values| / 448. On GPUs one launch. rolled: where GPUs write
    the new history; by default new memory.
    """
    if not values.is_cuda:
        latest = values.abs().amax().to(history.dtype)
        rolled = torch.cat((history[1:], latest[None]))
        return rolled, rolled.amax().clamp(min=SMALLEST_MAXIMUM).float().reshape(1) / LARGEST_CODE
    flat, device = values.contiguous(), values.device
    blocks = min(max(-(-flat.nbytes // (64 * THREADS)), 1), BLOCKS)
    rolled = torch.empty_like(history) if rolled is None else rolled
    numbers = torch.empty(blocks + 1, dtype=torch.float32, device=device)  # the blocks' maxima, then the scale
    least = float(torch.tensor(SMALLEST_MAXIMUM).to(history.dtype))
    by_product = int(divides_by_product(device))
    kernel = kernel_for(flat.dtype).find_scale[blocks, THREADS]
    scratch = numbers.view(torch.int32), _counter(device), rolled, numbers[blocks:]
    kernel(flat, history.contiguous(), *scratch, flat.numel(), history.numel(), least, LARGEST_CODE, by_product)
    return rolled, numbers[blocks:]
