"""House kernel: jagged all-to-all; sources compute each segment's final place from a table of sums, and store it."""

import functools
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist

from sandbox.kit import cuda, symm, tables
from sandbox.kit.blocks.side_stream import on_host, read_early

kernel_for = cuda.lazy(r"""
// The plan of F features: F + 1 numbers, where each feature's lengths begin on this rank; then F numbers each: where they are
// stored at the feature's owner, the owner, and the owner's first feature.
const int SLOT = 1000;
struct Plan {
    const PxNumbers& few;
    const i64* many;
    int features;
    __device__ i64 begin(int f) const { return px_number(few, many, f); }
    __device__ i64 place(int f) const { return px_number(few, many, features + 1 + f); }
    __device__ int owner(int f) const { return px_number(few, many, 2 * features + 1 + f); }
    __device__ int first(int f) const { return px_number(few, many, 3 * features + 1 + f); }
};
static __device__ i64 sum_up_to(i64 value) {  // returns the sum over the warp's lanes up to this one
    const int lane = threadIdx.x % 32;
    #pragma unroll
    for (int away = 1; away < 32; away *= 2) {
        const i64 before = __shfl_sync(0xffffffffu, value, max(lane - away, 0));
        if (lane >= away) value += before;
    }
    return value;
}
// Stores lengths at their final places and adds them up; a feature has `parts` items. The last block sends this rank's sums to
// all ranks. table: [W][F], the sums of all ranks, symmetric; partial: [F][parts]; whole: [F + 1], ids of all ranks before a
// feature; places: [F], where this rank's ids of a feature are stored at its owner; starts: [F + 1], where they begin here.
// found: ids that this rank receives; order.at: the senders' order; batch.at: batch sizes by rank; batches: [1 + W], their sum,
// then each of them.
extern "C" __global__ void __launch_bounds__(512) push_lengths(Px px, PxNumbers few, const i64* many, const i64* lengths,
        i64* result, i64* partial, i64* table, i64* whole, i64* places, i64* starts, i64* found, i64* batches, u32* done,
        PxNumbers order, PxNumbers batch, int features, int parts, int own_first, int own_end) {
    __shared__ i64 warps[16];
    const Plan plan = {few, many, features};
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (blockIdx.x == 0 && threadIdx.x < px.world) batches[1 + threadIdx.x] = batch.at[threadIdx.x];
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        batches[0] = 0;
        for (int rank = 0; rank < px.world; ++rank) batches[0] += batch.at[rank];
    }
    for (int item = blockIdx.x; item < features * parts; item += gridDim.x) {
        const int f = item / parts, part = item % parts;
        const i64 begin = plan.begin(f), n = plan.begin(f + 1) - begin, share = (n + parts - 1) / parts;
        const i64 end = min((part + 1) * share, n);
        i64* there = px_at(px, plan.owner(f), result) + plan.place(f);
        i64 sum = 0;
        for (i64 i = part * share + threadIdx.x; i < end; i += blockDim.x) {
            const i64 length = lengths[begin + i];
            there[i] = length;
            sum += length;
        }
        sum = sum_up_to(sum);
        if (lane == 31) warps[warp] = sum;
        __syncthreads();
        if (threadIdx.x == 0) {
            sum = 0;
            for (int w = 0; w < blockDim.x / 32; ++w) sum += warps[w];
            partial[item] = sum;
        }
        __syncthreads();
    }
    if (!px_last_block(done, gridDim.x)) return;
    const u32 turn = px_turn(px, SLOT);
    for (int f = threadIdx.x; f < features; f += blockDim.x) {
        i64 sum = 0;
        for (int part = 0; part < parts; ++part) sum += ((const volatile i64*)partial)[f * parts + part];
        for (int peer = 0; peer < px.world; ++peer) px_at(px, peer, table)[px.rank * features + f] = sum;
    }
    px_turn_barrier(px, SLOT, turn);
    const volatile i64* sums = table;
    if (warp == 0) {
        i64 before_all = 0, before_own = 0;
        for (int begin = 0; begin < features + 1; begin += 32) {
            const int f = begin + lane;
            i64 all = 0;
            const i64 own = f < features ? sums[px.rank * features + f] : 0;
            for (int rank = 0; rank < px.world; ++rank) all += f < features ? sums[rank * features + f] : 0;
            const i64 until_all = sum_up_to(all), until_own = sum_up_to(own);
            if (f <= features) {
                whole[f] = before_all + until_all - all;
                starts[f] = before_own + until_own - own;
            }
            before_all += __shfl_sync(0xffffffffu, until_all, 31);
            before_own += __shfl_sync(0xffffffffu, until_own, 31);
        }
    }
    __syncthreads();
    for (int f = threadIdx.x; f < features; f += blockDim.x) {
        i64 place = whole[f] - whole[plan.first(f)];
        for (int j = 0; order.at[j] != px.rank; ++j) place += sums[order.at[j] * features + f];
        places[f] = place;
    }
    if (threadIdx.x == 0) *found = whole[own_end] - whole[own_first];
}
// Stores ids, or weights, at their owners. rows: [n], this rank's; a block has a consecutive part, and stores it by features.
extern "C" __global__ void __launch_bounds__(512) push_rows(Px px, PxNumbers few, const i64* many, const TYPE* rows,
        TYPE* result, const i64* starts, const i64* places, i64 n, int features) {
    const Plan plan = {few, many, features};
    const u32 turn = px_turn(px, blockIdx.x);
    const i64 share = (n + gridDim.x - 1) / gridDim.x, end = min((blockIdx.x + 1) * share, n);
    i64 begin = blockIdx.x * share;
    int f = 0;
    for (int high = features; begin < end && high - f > 1;) {  // find the last feature that begins at `begin` or before
        const int middle = (f + high) / 2;
        if (starts[middle] <= begin) f = middle;
        else high = middle;
    }
    for (; begin < end; ++f) {
        const i64 until = min(end, starts[f + 1]);
        if (until <= begin) continue;
        TYPE* there = px_at(px, plan.owner(f), result) + (places[f] - starts[f]);
        for (i64 i = begin + threadIdx.x; i < until; i += 4 * blockDim.x) {
            TYPE part[4];
            #pragma unroll  // all loads are in flight before the first store
            for (int k = 0; k < 4; ++k)
                if (i + k * blockDim.x < until) part[k] = rows[i + k * blockDim.x];
            #pragma unroll
            for (int k = 0; k < 4; ++k)
                if (i + k * blockDim.x < until) there[i + k * blockDim.x] = part[k];
        }
        begin = until;
    }
    px_turn_barrier(px, blockIdx.x, turn);  // all rows and lengths have arrived, and `table` may be written again
}
""")
BLOCKS, THREADS = 128, 512
WORDS = {2: torch.uint16, 4: torch.uint32, 8: torch.uint64}

symm.reserve(4 << 30)  # two results of the largest sizes


@functools.lru_cache(maxsize=64)
def plan_of(splits: tuple[int, ...], strides: tuple[tuple[int, ...], ...], before: tuple[int, ...], rank: int) -> Any:
    """Returns (the plan's numbers, how many lengths each rank gets).

    strides[r][f]: samples of feature f on rank r; before: the ranks that precede this one in the senders' order.
    """
    begins = [0, *accumulate(strides[rank])]
    places: list[int] = []
    owners: list[int] = []
    firsts: list[int] = []
    lengths = []
    f = 0
    for owner, features in enumerate(splits):
        first, there = f, 0
        for f in range(first, first + features):
            places.append(there + sum(strides[peer][f] for peer in before))
            there += sum(stride[f] for stride in strides)
        f = first + features
        owners += [owner] * features
        firsts += [first] * features
        lengths.append(there)
    return [*begins, *places, *owners, *firsts], lengths


def solution(
    lengths: torch.Tensor,
    values: torch.Tensor,
    key_splits: list[int],
    batch_size: int,
    pg: dist.ProcessGroup | None = None,
    weights: torch.Tensor | None = None,
    stride_per_key: list[int] | None = None,
    stagger: int = 1,
) -> dict[str, torch.Tensor]:
    """Sends every feature of this rank's samples to the feature's owner.

    lengths [sum of strides] int64, feature by feature; values [sum of lengths] and weights (or None) in the
    same order. Rank d owns the next key_splits[d] features; feature f has stride_per_key[f] samples here
    (batch_size without it).

    Returns lengths, values (and weights) of the owned features, feature by feature and within a feature by
    source, sources in the order x, x + g, x + 2g... for x below g = W / stagger. Without stride_per_key
    also stride_per_rank [W], the batch sizes, and stride, their sum (0-dim int64); with stride_per_key instead
    stride_per_key_per_rank [owned features, W], sources in that order.
    """
    team = symm.team(pg)
    world, rank, features = team.world, team.rank, sum(key_splits)
    if lengths.is_cuda:  # before the ranks exchange: see `cuda.lazy`
        for source in (values, values if weights is None else weights):
            kernel_for(WORDS[source.element_size()])
    span = world // stagger
    order = [x + span * y for x in range(span) for y in range(stagger)]
    heard = team.gather_numbers(values.numel(), *([batch_size] if stride_per_key is None else stride_per_key))
    strides = tuple(told[1:] * features if stride_per_key is None else told[1:] for told in heard)
    plan, owned_lengths = plan_of(tuple(key_splits), strides, tuple(order[: order.index(rank)]), rank)
    ids = [told[0] for told in heard]
    # Two of each result are enough: a rank stores for call e+2 after the barrier of call e+1, and all ranks read the
    # results of call e before that barrier.
    rooms = {"lengths": team.room(max(owned_lengths), lengths.dtype, "lengths")}
    sources = {"values": values.contiguous()} | ({} if weights is None else {"weights": weights.contiguous()})
    rooms |= {name: team.room(sum(ids), source.dtype, name) for name, source in sources.items()}
    batches = [told[1] if stride_per_key is None else 0 for told in heard]
    push = on_gpus if lengths.is_cuda else on_cpu
    found, stride = push(lengths.contiguous(), sources, rooms, plan, key_splits, order, batches, max(ids), team)
    result = {"lengths": rooms["lengths"][: owned_lengths[rank]], "values": rooms["values"][:found]}
    if stride_per_key is None:
        result |= {"stride": stride[0], "stride_per_rank": stride[1:]}
    else:
        first = sum(key_splits[:rank])
        table = [[strides[peer][f] for peer in order] for f in range(first, first + key_splits[rank])]
        shape = key_splits[rank], world
        result["stride_per_key_per_rank"] = torch.tensor(table, dtype=torch.int64, device=lengths.device).view(shape)
    if weights is not None:
        result["weights"] = rooms["weights"][:found]
    return result


def on_gpus(
    lengths: torch.Tensor,
    sources: dict[str, torch.Tensor],
    rooms: dict[str, torch.Tensor],
    plan: list[int],
    splits: list[int],
    order: list[int],
    batches: list[int],
    most: int,
    team: Any,
) -> tuple[int, torch.Tensor]:
    """Fills the rooms of all ranks; returns how many ids arrive here, and [the batch sizes' sum, the batch sizes]."""
    features, device = sum(splits), lengths.device
    first = sum(splits[: team.rank])
    parts = max(BLOCKS // max(features, 1), 1)
    few, many = tables.numbers(plan, device)
    scratch = torch.empty(features * (parts + 1) + 2 * (features + 1), dtype=torch.int64, device=device)
    partial, whole, places, starts = torch.split(scratch, [features * parts, features + 1, features, features + 1])
    found = on_host(1)
    table = team.empty((team.world, max(features, 1)), torch.int64, "sums")
    done = team.empty(1, torch.int32, "done")  # zero at first, and after every launch
    stride = torch.empty(1 + team.world, dtype=torch.int64, device=device)
    tables_at = (x.data_ptr() for x in (partial, table, whole, places, starts, found, stride, done))
    kernels = {name: kernel_for(WORDS[source.element_size()]) for name, source in sources.items()}
    launch = kernels["values"].push_lengths[min(max(features * parts, 1), BLOCKS), THREADS]
    numbers = order, batches, features, parts, first, first + splits[team.rank]
    launch(team.px, few, many, lengths, rooms["lengths"], *tables_at, *numbers)
    arriving = read_early(found)
    blocks = min(max(-(-most // (4 * THREADS)), 1), BLOCKS)  # the same on all ranks
    for name, source in sources.items():
        addresses = source.data_ptr(), rooms[name].data_ptr(), starts.data_ptr(), places.data_ptr()
        kernels[name].push_rows[blocks, THREADS](team.px, few, many, *addresses, source.numel(), features)
    return int(arriving()[0]), stride


def on_cpu(
    lengths: torch.Tensor,
    sources: dict[str, torch.Tensor],
    rooms: dict[str, torch.Tensor],
    plan: list[int],
    splits: list[int],
    order: list[int],
    batches: list[int],
    most: int,
    team: Any,
) -> tuple[int, torch.Tensor]:
    """Does on CPU ranks what `on_gpus` does on GPUs; the processes exchange the sums."""
    features, rank = sum(splits), team.rank
    begins, where = plan[: features + 1], plan[features + 1 : 2 * features + 1]
    owners, firsts = plan[2 * features + 1 : 3 * features + 1], plan[3 * features + 1 :]
    parts = [lengths[begins[f] : begins[f + 1]] for f in range(features)]
    sums = team.gather_numbers(*(int(part.sum()) for part in parts))
    whole = [0, *accumulate(sum(told[f] for told in sums) for f in range(features))]
    start = 0
    for f, (part, owner) in enumerate(zip(parts, owners, strict=True)):
        team.peers(rooms["lengths"])[owner][where[f] : where[f] + len(part)] = part
        place = whole[f] - whole[firsts[f]] + sum(sums[peer][f] for peer in order[: order.index(rank)])
        count = sums[rank][f]
        for name, source in sources.items():
            team.peers(rooms[name])[owner][place : place + count] = source[start : start + count]
        start += count
    team.barrier()
    first = sum(splits[:rank])
    return whole[first + splits[rank]] - whole[first], torch.tensor([sum(batches), *batches])
