"""Gradient of a two-layer ReLU perceptron without autograd: five products, and two launches for all that lies between them.

    from sandbox.kit.blocks.perceptron import parameters_in, write_gradient

    parameters = parameters_in(flat, shapes)             # views of W1, b1, W2, b2, one after another
    write_gradient(x, y, parameters, parameters_in(gradient, shapes))

Products write straight into the flat gradient. The gradient of W2 is complete before the hidden layer's is begun.
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from sandbox.kit import cuda

SOURCE = r"""
// x, other: [rows][width]. Changes x in place, then adds up its columns: bias[width]. A warp has 32 words of a row, the warps
// of a block (x: strip of columns, y: range of rows) have different rows. partial: [gridDim.y][width]; done: [gridDim.x], zero
// before and after. The last block of a strip adds up the ranges, in the same order in every launch.
struct Loss {  // of the mean squared error: (x - target) * factor
    float factor;
    __device__ float operator()(float x, float target) const { return (x - target) * factor; }
};
struct Relu {  // no gradient where the hidden value is not positive
    __device__ float operator()(float x, float hidden) const { return hidden > 0 ? x : 0; }
};
template <class T, class Change> static __device__ void change_and_sum(T* x, const T* other, T* bias, float* partial, u32* done,
        i64 rows, i64 width, Change change) {
    const int each = 16 / sizeof(T), lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const i64 column = ((i64)blockIdx.x * 32 + lane) * each, range = (rows + gridDim.y - 1) / gridDim.y;
    const i64 low = min(blockIdx.y * range, rows), high = min(low + range, rows);
    __shared__ float sums[8][32][16 / sizeof(T)];
    float sum[8] = {};
    for (i64 row = low + warp; row < high; row += 2 * warps) {
        uint4 part[2][2];
        #pragma unroll  // all loads are in flight before the first store
        for (int k = 0; k < 2; ++k) {
            const i64 n = row + k * warps < high ? width : 0;
            part[k][0] = px_ld_part(x + (row + k * warps) * width, column, n);
            part[k][1] = px_ld_part(other + (row + k * warps) * width, column, n);
        }
        #pragma unroll
        for (int k = 0; k < 2; ++k) {
            if (row + k * warps >= high) break;
            float value[8], second[8];
            px_unpack<T>(part[k][0], value);
            px_unpack<T>(part[k][1], second);
            #pragma unroll
            for (int e = 0; e < each; ++e) value[e] = change(value[e], second[e]);
            const uint4 rounded = px_pack<T>(value);
            px_st_part(x + (row + k * warps) * width, column, width, rounded);
            px_unpack<T>(rounded, value);  // the sum is of what the product reads
            #pragma unroll
            for (int e = 0; e < each; ++e) sum[e] += value[e];
        }
    }
    #pragma unroll
    for (int e = 0; e < each; ++e) sums[warp][lane][e] = sum[e];
    __syncthreads();
    if (warp == 0)
        #pragma unroll
        for (int e = 0; e < each; ++e) {
            float total = 0;
            for (int w = 0; w < warps; ++w) total += sums[w][lane][e];
            if (column + e < width) partial[blockIdx.y * width + column + e] = total;
        }
    if (!px_last_block(done + blockIdx.x, gridDim.y)) return;
    for (int i = threadIdx.x; i < 32 * each; i += blockDim.x) {
        const i64 at = (i64)blockIdx.x * 32 * each + i;
        float total = 0;
        if (at >= width) break;
        for (int y = 0; y < gridDim.y; ++y) total += ((const volatile float*)partial)[y * width + at];
        bias[at] = from_float<T>(total);
    }
}
"""
ENTRIES = r"""
extern "C" __global__ void __launch_bounds__(256) loss_gradient(TYPE* output, const TYPE* target, TYPE* bias, float* partial,
        u32* done, i64 rows, i64 width, float factor) {
    change_and_sum(output, target, bias, partial, done, rows, width, Loss{factor});
}
extern "C" __global__ void __launch_bounds__(256) relu_gradient(TYPE* gradient, const TYPE* hidden, TYPE* bias, float* partial,
        u32* done, i64 rows, i64 width) {
    change_and_sum(gradient, hidden, bias, partial, done, rows, width, Relu{});
}
"""
TYPES = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "float"}
WARPS = 8
WANTED = 1056
"""Blocks of a launch, about: eight to a multiprocessor."""
Tensors = Sequence[torch.Tensor]


@functools.cache
def kernel_for(dtype: torch.dtype) -> tuple[Any, Any]:
    """(loss_gradient, relu_gradient) of a dtype; compiled when they are first asked for, so inside a first call."""
    module: Any = cuda.compile(SOURCE + ENTRIES.replace("TYPE", TYPES[dtype]))
    return module.loss_gradient, module.relu_gradient


def parameters_in(flat: torch.Tensor, shapes: Sequence[Sequence[int]]) -> list[torch.Tensor]:
    """Views of a flat tensor with the given shapes, one after another."""
    counts = [math.prod(shape) for shape in shapes]
    return [part.view(*shape) for part, shape in zip(torch.split(flat, counts), shapes, strict=True)]


def write_gradient(
    features: torch.Tensor,
    targets: torch.Tensor,
    parameters: Tensors,
    gradients: Tensors,
    before_second: Callable[[], None] = lambda: None,
    ready: Callable[[int, int], None] = lambda first, last: None,
    pieces: int = 1,
) -> None:
    """Writes the gradient of the mean squared error of relu(X W1^T + b1) W2^T + b2 into `gradients`.

    features: [n, d_in], targets: [n, d_out]; parameters and gradients: W1 [h, d_in], b1 [h], W2 [d_out, h], b2 [d_out], all of
    one dtype. before_second is called when the first layer is queued, and before W2 and b2 are read. ready(first, last) is called
    when the gradient of elements `first` to `last` of the flat vector is queued: W2 and b2 first, then W1 with b1 in so many
    pieces, in ascending order.
    """
    w1, b1, w2, b2 = parameters
    of_w1, of_b1, of_w2, of_b2 = gradients
    hidden = torch._addmm_activation(b1, features, w1.t())  # relu in the product's epilogue
    before_second()
    output = torch.addmm(b2, hidden, w2.t())
    _change_by_loss(output, targets.contiguous(), of_b2)
    torch.mm(output.t(), hidden, out=of_w2)
    first_layer = w1.numel() + b1.numel()
    ready(first_layer, first_layer + w2.numel() + b2.numel())
    back = torch.mm(output, w2)
    _change_by_relu(back, hidden, of_b1)
    pieces = max(min(pieces, len(w1)), 1)
    rows = [len(w1) * piece // pieces for piece in range(pieces + 1)]
    for top, bottom in itertools.pairwise(rows):
        torch.mm(back[:, top:bottom].t(), features, out=of_w1[top:bottom])
        ready(top * w1.shape[1], first_layer if bottom == len(w1) else bottom * w1.shape[1])


def _change_by_loss(output: torch.Tensor, targets: torch.Tensor, bias: torch.Tensor) -> None:
    factor = 2 / output.numel()
    if not output.is_cuda:
        output.copy_((output.float() - targets.float()) * factor)
        bias.copy_(output.float().sum(dim=0))
        return
    kernel_for(output.dtype)[0][_launch(output)](
        output, targets, bias.data_ptr(), *_room(output), *output.shape, factor
    )


def _change_by_relu(gradient: torch.Tensor, hidden: torch.Tensor, bias: torch.Tensor) -> None:
    if not gradient.is_cuda:
        gradient.masked_fill_(hidden <= 0, 0)
        bias.copy_(gradient.float().sum(dim=0))
        return
    kernel_for(gradient.dtype)[1][_launch(gradient)](
        gradient, hidden, bias.data_ptr(), *_room(gradient), *gradient.shape
    )


def _launch(x: torch.Tensor) -> tuple[tuple[int, int], int]:
    rows, width = x.shape
    strips = -(-width * x.element_size() // 512)
    return (strips, max(min(WANTED // strips, -(-rows // (2 * WARPS))), 1)), 32 * WARPS


def _room(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(partial sums, counters that are zero) of a launch."""
    (strips, ranges), _ = _launch(x)
    partial = torch.empty(ranges * x.shape[1], dtype=torch.float32, device=x.device)
    return partial, _counters(strips, x.device)


@functools.cache
def _counters(strips: int, device: torch.device) -> torch.Tensor:
    return torch.zeros(strips, dtype=torch.int32, device=device)
