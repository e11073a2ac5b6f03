"""House kernel: SigLIP loss; texts are pushed beside the first products, and products are added up in chunks."""

from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional

from sandbox.kit import cuda, symm
from sandbox.kit.blocks.columns import kernel_for as column_kernels
from sandbox.kit.blocks.columns import push_columns

kernel_for = cuda.lazy(r"""
// Returns log(1 + exp(z)). Far from 0 a series replaces the logarithm, which is slower. Nearly all pairs are far below 0.
static __device__ float softplus(float z) {
    const float e = expf(-fabsf(z));
    const float rest = e < 0.01f ? e * (1 - e * (0.5f - e * (1 / 3.0f))) : log1pf(e);
    return fmaxf(z, 0) + rest;
}
// The whole block calls this: returns its part of the sum of softplus(scale * dot + bias). dots: [rows][width], products of
// images and texts. Positive pairs are (i, diagonal + i), or none if diagonal < 0; for them softplus(-z) = softplus(z) - z is
// added instead. sums: shared memory, one number per warp.
template <class T> static __device__ float block_sum(
        const T* dots, i64 rows, i64 width, i64 diagonal, float scale, float bias, double* sums) {
    const int each = 16 / sizeof(T);
    const i64 all = rows * width, first = (i64)blockIdx.x * blockDim.x + threadIdx.x, step = (i64)gridDim.x * blockDim.x;
    float sum = 0;
    for (i64 i = first; i * each < all; i += 4 * step) {
        uint4 part[4];
        #pragma unroll  // all loads are in flight before the first exponential
        for (int k = 0; k < 4; ++k) part[k] = px_ld_part(dots, (i + k * step) * each, all);
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
            float value[8];
            px_unpack<T>(part[k], value);
            #pragma unroll
            for (int e = 0; e < each; ++e)
                if ((i + k * step) * each + e < all) sum += softplus(scale * value[e] + bias);
        }
    }
    for (i64 i = first; diagonal >= 0 && i < rows; i += step)
        sum -= scale * to_float(dots[i * width + diagonal + i]) + bias;
    sum = px_warp_sum(sum);
    __syncthreads();
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    double total = 0;
    for (int warp = 0; warp < blockDim.x / 32; ++warp) total += sums[warp];
    return (float)total;
}
// Launch number `launch` of a call writes its blocks' sums to partial: [launches][gridDim.x]. Only the last launch has `loss`:
// its last block adds up all sums and writes the loss. done: a counter, 0 before and after.
extern "C" __global__ void __launch_bounds__(256) add_up_pairs(const TYPE* dots, i64 rows, i64 width, i64 diagonal, float scale,
        float bias, float* partial, int launch, u32* done, TYPE* loss, i64 images) {
    __shared__ double sums[256];
    const float sum = block_sum(dots, rows, width, diagonal, scale, bias, sums);
    if (threadIdx.x == 0) partial[launch * gridDim.x + blockIdx.x] = sum;
    if (!loss || !px_last_block(done, gridDim.x)) return;
    double total = 0;
    for (i64 i = threadIdx.x; i < (launch + 1) * gridDim.x; i += blockDim.x) total += ((const volatile float*)partial)[i];
    sums[threadIdx.x] = total;
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) *loss = from_float<TYPE>((float)(sums[0] / images));
}
""")
BLOCKS, THREADS = 528, 256
SENDING_BLOCKS = 32
"""Blocks of the exchange of texts; few, because they run beside a product."""
CHUNK = 1 << 26
"""Bytes of products per chunk. With 16 MB, which stay in the L2 cache, a call took 11 % longer on two H200."""
BESIDE: Any = torch.cuda.Stream(priority=-1) if torch.cuda.is_available() else None  # type: ignore[no-untyped-call]

symm.reserve(2 << 30)


def solution(
    image_features: torch.Tensor,
    text_features: torch.Tensor,
    logit_scale: float,
    logit_bias: float = 0.0,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """image_features, text_features [rows, D] -> this rank's loss, a 0-dim tensor of the run dtype.

    The sum over its images and all texts of -logsigmoid(±(logit_scale · <image, text> + logit_bias)), plus on matching pairs and
    minus elsewhere, divided by rows. Products are rounded to the run dtype, everything after them is float32, rounded once.
    """
    team = symm.team(group)
    image, text = image_features.contiguous(), text_features.contiguous()
    if image.is_cuda and image.numel():
        return on_gpus(image, text, logit_scale, logit_bias, team)
    return in_torch(image, text, logit_scale, logit_bias, team)


def on_gpus(image: torch.Tensor, text: torch.Tensor, scale: float, bias: float, team: symm.Team) -> torch.Tensor:
    """Computes one product with all texts if it is small; else starts with its own texts while the others arrive.

    Two buffers of texts are enough: a rank sends the texts of call e+2 after the barrier of call e+1, which follows the
    products of call e.
    """
    (rows, width), dtype = image.shape, image.dtype
    kernel = kernel_for(dtype)
    column_kernels(cuda.unit_of(text))  # before the ranks exchange: see `cuda.lazy`
    small = rows * rows * team.world * image.element_size() <= CHUNK
    blocks_of_text: list[tuple[torch.Tensor, int]] = [(text, 0)]
    here = arrives = None
    if team.world > 1:
        texts = team.out((team.world, rows, width), dtype, "texts", ring=2)

        def send() -> None:
            push_columns(text.view(1, -1), texts.view(1, -1), team, most_blocks=SENDING_BLOCKS)

        if small:
            blocks_of_text = [(texts.view(-1, width), team.rank * rows)]
        else:
            blocks_of_text += [(texts[peer], -1) for peer in team.order()[1:]]
        if small or BESIDE is None:
            send()
        else:
            here, arrives = torch.cuda.current_stream(), torch.cuda.Event()
            BESIDE.wait_stream(here)
            with torch.cuda.stream(BESIDE):
                send()
                arrives.record()
    height = rows if small else max(min(CHUNK // (rows * image.element_size()), rows), 1)
    chunks = -(-rows // height)
    dots = image.new_empty((height, blocks_of_text[0][0].shape[0]))
    blocks = min(max(-(-dots.numel() * dots.element_size() // (64 * THREADS)), 1), BLOCKS)
    launches = len(blocks_of_text) * chunks
    partial = torch.empty(launches * blocks, dtype=torch.float32, device=image.device)
    loss = image.new_empty(())
    done = team.empty(1, torch.int32, "done")  # zero at first, and after every call
    for number in range(launches):
        texts_now, diagonal = blocks_of_text[number // chunks]
        if number == chunks and here is not None:
            here.wait_event(arrives)
        first = number % chunks * height
        some = image[first : first + height]
        products = torch.mm(some, texts_now.t(), out=dots[: some.shape[0]])
        kernel.add_up_pairs[blocks, THREADS](
            *(products, *products.shape, diagonal + first if diagonal >= 0 else -1, scale, bias),
            *(partial, number, done, loss.data_ptr() if number == launches - 1 else 0, rows),
        )
    return loss


def in_torch(image: torch.Tensor, text: torch.Tensor, scale: float, bias: float, team: symm.Team) -> torch.Tensor:
    """Computes the loss on CPU ranks, which read the texts in the peers' memory."""
    peers = [text]
    if team.world > 1:
        peers = team.peers(team.stage(text))
        team.barrier()
    scaled = image.float() * scale
    total = torch.zeros((), dtype=torch.float64, device=image.device)
    for peer in team.order():
        logits = (scaled @ peers[peer].float().t()).add_(bias)
        if peer == team.rank:
            total -= logits.diagonal().sum()
        total += functional.softplus(logits).sum()
    return (total / image.shape[0]).to(image.dtype)
