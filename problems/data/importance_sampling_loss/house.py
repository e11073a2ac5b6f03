"""House kernel: importance-sampling loss; logits are read once, and seven numbers cross the ranks once.

The library multiplies the hidden states by the LM head. A kernel reads every row's largest logit, sum of exponentials and
label's logit. One more launch computes all tokens' results, and exchanges sums and extremes. The product limits the speed.
"""

import torch
import torch.distributed as dist

from sandbox.kit import cuda, symm
from sandbox.kit.recorded import recorded

kernel_for = cuda.lazy(r"""
// A block reads one row. logits: [rows][width]; state: [rows][3], {largest, sum of exponentials, label's logit}.
extern "C" __global__ void __launch_bounds__(256) read_logits(const TYPE* logits, const i64* labels, float* state, i64 width) {
    const i64 row = blockIdx.x, column = labels[row];
    const PxMass mass = px_block_mass(px_mass(logits + row * width, width, threadIdx.x, blockDim.x));
    if (threadIdx.x != 0) return;
    float* mine = state + 3 * row;
    mine[0] = mass.peak, mine[1] = mass.sum;
    if (column >= 0 && column < width) mine[2] = to_float(logits[row * width + column]);
}
// Sums and extremes over the tokens that are not ignored.
struct Sums { float loss, ratio, kl, entropy, count, smallest, largest; };
static __device__ void add(Sums& to, const Sums& more) {
    to.loss += more.loss, to.ratio += more.ratio, to.kl += more.kl, to.entropy += more.entropy, to.count += more.count;
    to.smallest = fminf(to.smallest, more.smallest), to.largest = fmaxf(to.largest, more.largest);
}
// One block calls this: writes each token's log-probability and loss, and means over the tokens of all ranks. state: as in
// `read_logits`; others: [rows]. boxes: four warps', as in px_swap. out: [6], the loss, then the five metrics.
extern "C" __global__ void __launch_bounds__(1024) finish_tokens(Px px, const float* state, const i64* labels, const TYPE* old,
        const TYPE* advantages, i64 ignored, uint4* boxes, TYPE* logprobs, TYPE* losses, float* out, i64 rows) {
    __shared__ Sums all[1024];
    __shared__ float ranks[8][PX_MAX_WORLD];
    const u32 turn = px_turn(px, 0);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    Sums sums = {0, 0, 0, 0, 0, px_infinity(), -px_infinity()};
    for (i64 i = threadIdx.x; i < rows; i += blockDim.x) {
        float logprob = 0, loss = 0;
        if (labels[i] != ignored) {
            logprob = state[3 * i + 2] - state[3 * i] - logf(state[3 * i + 1]);
            const float delta = fminf(fmaxf(logprob - to_float(old[i]), -20.0f), 20.0f), ratio = expf(delta);
            loss = -ratio * to_float(advantages[i]);
            add(sums, {loss, ratio, ratio - delta - 1, -logprob, 1, ratio, ratio});
        }
        logprobs[i] = from_float<TYPE>(logprob), losses[i] = from_float<TYPE>(loss);
    }
    all[threadIdx.x] = sums;
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) add(all[threadIdx.x], all[threadIdx.x + half]);
    }
    __syncthreads();
    if (warp < 4) {  // each of four warps exchanges a pair of numbers
        const Sums& own = all[0];
        const float first = warp == 0 ? own.loss : warp == 1 ? own.kl : warp == 2 ? own.count : own.smallest;
        const float second = warp == 0 ? own.ratio : warp == 1 ? own.entropy : warp == 2 ? 0 : own.largest;
        const uint2 pair = make_uint2(__float_as_uint(first), __float_as_uint(second));
        const uint2 got = px_swap(px, boxes + warp * 2 * px.world, pair, turn);
        if (lane < px.world) {
            ranks[2 * warp][lane] = __uint_as_float(got.x);
            ranks[2 * warp + 1][lane] = __uint_as_float(got.y);
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        Sums total = {0, 0, 0, 0, 0, px_infinity(), -px_infinity()};
        for (int r = 0; r < px.world; ++r)  // the same bits on all ranks
            add(total, {ranks[0][r], ranks[1][r], ranks[2][r], ranks[3][r], ranks[4][r], ranks[6][r], ranks[7][r]});
        const float count = fmaxf(total.count, 1);
        out[0] = total.loss / count, out[1] = total.ratio / count, out[2] = total.smallest, out[3] = total.largest;
        out[4] = total.kl / count, out[5] = total.entropy / count;
    }
    px_reach(px, 0, turn);
}
""")
THREADS = 256
CLAMP = 20.0


def solution(
    hidden_states: torch.Tensor,
    weight: torch.Tensor,
    labels: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    ignore_index: int = -100,
) -> tuple[torch.Tensor, None, torch.Tensor, torch.Tensor, torch.Tensor]:
    """hidden_states [.., N], weight [V, N], labels int64, old_logprobs and advantages with as many elements as tokens.

    Returns (loss, None, log-probabilities shaped as labels, per-token loss shaped as labels, metrics). loss is a 0-dim
    float32; metrics are float32 [5]: mean ratio, smallest and largest ratio, k3 estimate of the KL divergence, cross-entropy;
    all over the valid tokens of all ranks.
    """
    hidden, target = hidden_states.reshape(-1, hidden_states.shape[-1]), labels.reshape(-1)
    given = [hidden, weight, target, *(each.reshape(-1).contiguous() for each in (old_logprobs, advantages))]
    if not hidden.is_cuda:
        return by_library(given, ignore_index, labels.shape)
    logprobs, losses = (torch.empty_like(target, dtype=hidden.dtype), torch.empty_like(target, dtype=hidden.dtype))
    out = torch.empty(6, dtype=torch.float32, device=hidden.device)
    write_losses([*given, logprobs, losses, out], ignore_index)
    return out[0], None, logprobs.view(labels.shape), losses.view(labels.shape), out[1:]


@recorded
def write_losses(tensors: list[torch.Tensor], ignored: int) -> None:
    """Writes the last three of the tensors on GPUs: log-probabilities, losses, and the six numbers of `finish_tokens`."""
    hidden, weight, target, old, advantage, *results = tensors
    kernels, tokens = kernel_for(hidden.dtype), len(target)
    state = torch.empty((tokens, 3), dtype=torch.float32, device=hidden.device)
    if tokens:
        kernels.read_logits[tokens, THREADS](torch.mm(hidden, weight.t()), target, state, len(weight))
    boxes = symm.empty((4, 2, symm.world, 4), torch.int32, "boxes").data_ptr()
    kernels.finish_tokens[1, 4 * THREADS](symm.px, state, target, old, advantage, ignored, boxes, *results, tokens)


def by_library(
    given: list[torch.Tensor], ignored: int, shape: torch.Size
) -> tuple[torch.Tensor, None, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Computes `solution` on CPU ranks, with all seven numbers in one all-gather."""
    hidden, weight, target, old, advantage = given
    valid = target != ignored
    logits = torch.mm(hidden, weight.t()).float()
    picked = logits.gather(1, target.masked_fill(~valid, 0)[:, None])[:, 0]
    logprobs = (picked - logits.logsumexp(dim=1)).masked_fill_(~valid, 0)
    delta = (logprobs - old).clamp_(-CLAMP, CLAMP)
    ratio = delta.exp()
    losses = (-ratio * advantage).masked_fill_(~valid, 0)
    sums = torch.stack((losses, ratio, ratio - delta - 1, -logprobs, torch.ones_like(ratio)))
    extremes = [ratio.masked_fill(~valid, torch.inf).amin(), -ratio.masked_fill(~valid, -torch.inf).amax()]
    mine = torch.cat(((sums * valid).sum(dim=1), torch.stack(extremes)))
    everybody = mine.new_empty(dist.get_world_size(), mine.numel())
    dist.all_gather_into_tensor(everybody, mine)
    loss, mean, kl, entropy, count = everybody[:, :5].sum(dim=0)
    smallest, largest = everybody[:, 5:].amin(dim=0)
    count = count.clamp(min=1)
    metrics = torch.stack((mean / count, smallest, -largest, kl / count, entropy / count))
    logprobs, losses = (each.to(hidden.dtype).view(shape) for each in (logprobs, losses))
    return loss / count, None, logprobs, losses, metrics
