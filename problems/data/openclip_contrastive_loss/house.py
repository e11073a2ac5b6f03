"""House kernel: SigLIP loss; texts are pushed beside the first products, and products are added up in chunks."""

import torch
import torch.distributed as dist
from torch.nn import functional

from sandbox.kit import cuda, symm
from sandbox.kit.blocks.columns import kernel_for as column_kernels
from sandbox.kit.blocks.columns import push_columns
from sandbox.kit.blocks.side_stream import beside, join
from sandbox.kit.recorded import recorded

kernel_for = cuda.lazy(r"""
// Returns log(1 + exp(z)). The polynomial is log(1 + e) / e for e from 0 to 1, with a relative error below 4e-7. Without a branch
// this takes less time than loading the products.
static __device__ float softplus(float z) {
    const float e = px_exp(-fabsf(z)), factors[] = {-0.0085391989f, 0.044089597f, -0.10768166f, 0.17745239f, -0.24495462f,
        0.33275479f, -0.49997404f, 0.99999982f};
    float sum = 0;
    #pragma unroll
    for (float factor : factors) sum = sum * e + factor;
    return fmaxf(z, 0) + e * sum;
}
// Returns the sum of softplus over the first `count` elements of a word.
template <class T> static __device__ float word_sum(uint4 word, int count, float scale, float bias) {
    float value[8], sum = 0;
    px_unpack<T>(word, value);
    #pragma unroll
    for (int e = 0; e < 16 / sizeof(T); ++e)
        if (e < count) sum += softplus(scale * value[e] + bias);
    return sum;
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
            const i64 left = all - (i + k * step) * each;
            // With a constant count, no element is compared with the end.
            if (left >= each) sum += word_sum<T>(part[k], each, scale, bias);
            else if (left > 0) sum += word_sum<T>(part[k], (int)left, scale, bias);
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
CHUNK = 1 << 30
"""Bytes of products per chunk. With 64 MB a call took 7 % longer on one H200, with 32 MB 13 %: there are more products."""

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
    rows, width = image.shape
    kernel = kernel_for(image.dtype)
    column_kernels(cuda.unit_of(text))  # before the ranks exchange: see `cuda.lazy`
    texts = team.out((team.world, rows, width), text.dtype, "texts", ring=2) if team.world > 1 else text[None]
    loss, done = image.new_empty(()), team.empty(1, torch.int32, "done")
    if rows * rows * team.world * image.element_size() <= CHUNK >> 4:
        at_once([image, text, texts, done, loss], scale, bias, team)
        return loss
    if team.world > 1:
        with beside():
            push_columns(text.view(1, -1), texts.view(1, -1), team, most_blocks=SENDING_BLOCKS)
    blocks_of_text = [(text, 0), *((texts[peer], -1) for peer in team.order()[1:])]
    height = max(min(CHUNK // (rows * image.element_size()), rows), 1)
    chunks = -(-rows // height)
    dots = image.new_empty((height, rows))
    blocks = blocks_for(dots)
    launches = len(blocks_of_text) * chunks
    partial = torch.empty(launches * blocks, dtype=torch.float32, device=image.device)
    for number in range(launches):
        texts_now, diagonal = blocks_of_text[number // chunks]
        if number == chunks:
            join()  # the other ranks' texts have arrived
        first = number % chunks * height
        some = image[first : first + height]
        products = torch.mm(some, texts_now.t(), out=dots[: some.shape[0]])
        kernel.add_up_pairs[blocks, THREADS](
            *(products, *products.shape, diagonal + first if diagonal >= 0 else -1, scale, bias),
            *(partial, number, done, loss.data_ptr() if number == launches - 1 else 0, rows),
        )
    return loss


@recorded
def at_once(tensors: list[torch.Tensor], scale: float, bias: float, team: symm.Team) -> None:
    """Writes the loss by one product with all texts. A training step changes scale and bias: then it is not recorded."""
    image, text, texts, done, loss = tensors
    if team.world > 1:
        push_columns(text.view(1, -1), texts.view(1, -1), team, most_blocks=SENDING_BLOCKS)
    products = torch.mm(image, texts.flatten(0, 1).t())
    blocks = blocks_for(products)
    partial = image.new_empty(blocks, dtype=torch.float32)
    given = products, *products.shape, team.rank * len(image), scale, bias, partial, 0, done, loss.data_ptr()
    kernel_for(image.dtype).add_up_pairs[blocks, THREADS](*given, len(image))


def blocks_for(products: torch.Tensor) -> int:
    """Blocks of a launch that adds up products: a thread has at least four words."""
    return min(max(-(-products.nbytes // (64 * THREADS)), 1), BLOCKS)


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
