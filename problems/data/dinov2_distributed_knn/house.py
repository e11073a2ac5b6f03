"""House kernel: nearest neighbours; one launch spreads the queries, the library multiplies, one selects and merges."""

import torch
import torch.distributed as dist

from sandbox.kit import cuda, symm
from sandbox.kit.blocks import candidates
from sandbox.kit.blocks.columns import kernel_for as column_kernels
from sandbox.kit.blocks.columns import push_columns

SOURCE = (
    candidates.KEYS
    + r"""
const int LIST = 1024, MOST = LIST / 2;
// The whole block calls this: writes the k largest values of a row to `listed`, in descending order. An entry is a value's key,
// followed by column_bits bits that are smaller for later columns, so all entries are different. The k-th largest of the threads'
// maxima is a bound that at least k values reach, and few others. They are collected in a second pass over the row, which is
// still cached. The place of an entry is the number of larger entries.
template <class T> static __device__ void choose(const T* from, i64 columns, u32 k, int column_bits, u64* entries, u64* listed) {
    __shared__ u32 found, keys[512];
    const u64 last = (1ull << column_bits) - 1;
    const auto entry = [&](float value, i64 column) { return (u64)key_of<T>(value) << column_bits | (last - column); };
    const auto collect = [&](u64 least) {
        const float low = least >> column_bits ? value_of<T>((u32)(least >> column_bits)) : -px_infinity();
        __syncthreads();
        if (threadIdx.x == 0) found = 0;
        __syncthreads();
        look(from, columns, [&](float value, i64 column) {
            if (value < low || entry(value, column) < least) return;
            const u32 at = atomicAdd(&found, 1u);
            if (at < LIST) entries[at] = entry(value, column);
        });
        __syncthreads();
    };
    float best = -px_infinity();
    look(from, columns, [&](float value, i64) { best = fmaxf(best, value); });
    __syncthreads();
    keys[threadIdx.x] = (i64)threadIdx.x * (16 / sizeof(T)) < columns ? key_of<T>(best) : 0;
    __syncthreads();
    u32 bound = 0;
    for (int bit = Key<T>::bits - 1; bit >= 0; --bit)
        if (__syncthreads_count(keys[threadIdx.x] >= (bound | 1u << bit)) >= k) bound |= 1u << bit;
    collect((u64)bound << column_bits);
    if (found > LIST) {  // many equal values: search the whole row bit by bit for the k-th largest entry
        u64 least = 0;
        for (int bit = Key<T>::bits + column_bits - 1; bit >= 0; --bit) {
            const u64 probe = least | 1ull << bit;
            u32 reached = 0;
            look(from, columns, [&](float value, i64 column) { reached += entry(value, column) >= probe; });
            __syncthreads();
            if (threadIdx.x == 0) found = 0;
            __syncthreads();
            if (reached) atomicAdd(&found, reached);
            __syncthreads();
            if (found >= k) least = probe;
        }
        collect(least);
    }
    for (int i = threadIdx.x; i < found; i += blockDim.x) {
        u32 place = 0;
        for (int j = 0; j < found; ++j) place += entries[j] > entries[i];
        if (place < k) listed[place] = entries[i];
    }
    __syncthreads();
}
// Finds each query's k nearest of all ranks. found: [queries of all ranks][columns], the products; rank r's queries are the rows
// from first.at[r] on. most: the largest number of queries of a rank. A block works on the queries with the same numbers on all
// ranks. It sends the k largest values of each, with their labels, to the query's owner. boxes: [W (senders)][most][k] words of
// 16 bytes, symmetric. Then it merges what it has received for this rank's own queries. similarities, nearest: [own queries][k].
extern "C" __global__ void __launch_bounds__(512, 2) search_rows(Px px, const TYPE* found, const i64* labels, uint4* boxes,
        TYPE* similarities, i64* nearest, i64 columns, int column_bits, int k, i64 most, PxNumbers first) {
    const u32 turn = px_turn(px, blockIdx.x);
    __shared__ u64 entries[LIST], listed[MOST];
    __shared__ float values[PX_MAX_WORLD][MOST];
    for (i64 query = blockIdx.x; query < most; query += gridDim.x)
        for (int away = 1; away <= px.world; ++away) {  // this rank's own queries last
            const int owner = (px.rank + away) % px.world;
            if (query >= first.at[owner + 1] - first.at[owner]) continue;
            choose<TYPE>(found + (first.at[owner] + query) * columns, columns, k, column_bits, entries, listed);
            uint4* there = px_at(px, owner, boxes) + (px.rank * most + query) * k;
            for (int i = threadIdx.x; i < k; i += blockDim.x) {
                const u64 mask = (1ull << column_bits) - 1, label = labels[mask - (listed[i] & mask)];
                const float value = value_of<TYPE>((u32)(listed[i] >> column_bits));
                px_st16(there + i, make_uint4(__float_as_uint(value), 0, (u32)label, (u32)(label >> 32)));
            }
        }
    px_turn_barrier(px, blockIdx.x, turn);  // all ranks' candidates have arrived
    for (i64 query = blockIdx.x; query < first.at[px.rank + 1] - first.at[px.rank]; query += gridDim.x) {
        const uint4* box = boxes + query * k;
        for (int i = threadIdx.x; i < px.world * k; i += blockDim.x)
            values[i / k][i % k] = __uint_as_float(px_ld16(box + i / k * most * k + i % k).x);
        __syncthreads();
        for (int i = threadIdx.x; i < px.world * k; i += blockDim.x) {
            const int source = i / k;
            const uint4 word = px_ld16(box + source * most * k + i % k);
            const float value = __uint_as_float(word.x);
            int place = i % k;
            for (int other = 0; other < px.world; ++other) {
                // Counts the other rank's candidates that come before this one: larger values, and equal values of a lower rank.
                int low = 0, high = other == source ? 0 : k;
                while (low < high) {
                    const int middle = (low + high) / 2;
                    const float there = values[other][middle];
                    if (there > value || (there == value && other < source)) low = middle + 1;
                    else high = middle;
                }
                place += low;
            }
            if (place >= k) continue;
            const i64 at = query * k + place;
            similarities[at] = from_float<TYPE>(value);
            nearest[at] = (i64)((u64)word.w << 32 | word.z);
        }
        __syncthreads();
    }
}
"""
)
kernel_for = cuda.lazy(SOURCE)
BLOCKS, THREADS = 264, 512
MOST_NEIGHBOURS = 512


def solution(
    test_features_rank: torch.Tensor,
    train_features_rank_T: torch.Tensor,
    train_labels_rank: torch.Tensor,
    max_k: int,
    group: dist.ProcessGroup | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """test_features_rank [Q, D], train_features_rank_T [D, T], train_labels_rank [1, T] int64 -> two times [Q, max_k].

    Returns the largest scalar products of each query of this rank with all ranks' columns, in descending order and in
    the run dtype, and the labels (int64) of those columns. Q and T may differ between ranks; max_k may not exceed any T
    (ValueError).
    """
    (width, columns), labels = train_features_rank_T.shape, train_labels_rank.view(-1)
    if max_k > columns:
        raise ValueError(f"max_k is {max_k}, but this rank has only {columns} training features")
    queries, team = test_features_rank.contiguous(), symm.team(group)
    on_gpu = queries.is_cuda and queries.dtype in cuda.FLOATS and 0 < max_k <= MOST_NEIGHBOURS
    if on_gpu:
        column_kernels(cuda.unit_of(queries))
        kernel_for(queries.dtype)  # before the ranks exchange: see `cuda.lazy`
    counts = [count for (count,) in team.gather_numbers(queries.shape[0])]
    most, first = max(counts), [sum(counts[:rank]) for rank in range(team.world + 1)]
    if not on_gpu or most == 0 or width == 0:
        return by_library(queries, train_features_rank_T, labels, max_k, counts, group)
    # Two buffers of each are enough: a rank stores for call e+2 after the barrier of call e+1.
    everyone = team.room(first[-1] * width, queries.dtype, "queries")
    boxes = team.room(team.world * most * max_k * 4, torch.int32, "candidates")
    everyone = everyone[: first[-1] * width]
    push_columns(queries.view(1, -1), everyone.view(1, -1), team, first[team.rank] * width, most * width)
    found = everyone.view(-1, width) @ train_features_rank_T
    similarities = queries.new_empty(queries.shape[0], max_k)
    nearest = labels.new_empty(similarities.shape)
    sizes = columns, (columns - 1).bit_length(), max_k, most
    launch = kernel_for(queries.dtype).search_rows[min(most, BLOCKS), THREADS]
    launch(team.px, found, labels, boxes.data_ptr(), similarities, nearest, *sizes, first)
    return similarities, nearest


def by_library(
    queries: torch.Tensor,
    train: torch.Tensor,
    labels: torch.Tensor,
    k: int,
    counts: list[int],
    group: dist.ProcessGroup | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Computes `solution` by library calls; counts: the number of queries of each rank."""
    everyone = [queries.new_empty(count, queries.shape[1]) for count in counts]
    dist.all_gather(everyone, queries, group=group)
    found, columns = (torch.cat(everyone) @ train).topk(k, dim=1)
    own = [queries.shape[0]] * len(counts)
    gathered = []
    for sent in (found, labels[columns]):
        received = sent.new_empty(sum(own), k)
        dist.all_to_all_single(received, sent, own, counts, group=group)
        gathered.append(received.view(len(counts), -1, k).transpose(0, 1).flatten(1))
    similarities, places = gathered[0].topk(k, dim=1)
    return similarities, gathered[1].gather(1, places)
