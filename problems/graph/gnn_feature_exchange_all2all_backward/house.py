"""House kernel: backward exchange; rows are stored at their places; rows of one node are added up before atomics."""

import torch
import torch.distributed as dist

from sandbox.kit import cuda, symm
from sandbox.kit.blocks.rows import all_to_all_rows
from sandbox.kit.blocks.side_stream import beside, join

kernels = cuda.lazy(r"""
// Adds row j of rows to row ids[j] of total. rows: [count][width]; ids: [count]; total: [..][width], zeros at first. A block
// sorts a batch of rows by id. Each section of its threads, one thread per column, adds a part of the batch. So a node with many
// rows costs one atomic addition per batch and section, not one per row.
const int BATCH = 256;
extern "C" __global__ void __launch_bounds__(512) add_rows(
        const float* rows, const i64* ids, float* total, i64 count, i64 width) {
    __shared__ u32 id[BATCH], ordered_id[BATCH], ordered_row[BATCH];
    const int columns = min(width, (i64)blockDim.x), sections = blockDim.x / columns;
    const int section = threadIdx.x / columns, each = (BATCH + sections - 1) / sections;
    for (i64 begin = (i64)blockIdx.x * BATCH; begin < count; begin += (i64)gridDim.x * BATCH) {
        const int many = min(count - begin, (i64)BATCH);
        for (int i = threadIdx.x; i < many; i += blockDim.x) id[i] = (u32)ids[begin + i];
        __syncthreads();
        for (int i = threadIdx.x; i < many; i += blockDim.x) {
            int place = 0;
            for (int j = 0; j < many; ++j) place += id[j] < id[i] || (id[j] == id[i] && j < i);
            ordered_id[place] = id[i];
            ordered_row[place] = i;
        }
        __syncthreads();
        const int first = section * each, last = min(first + each, many);
        for (i64 column = threadIdx.x % columns; section < sections && column < width; column += columns) {
            float sum = 0;
            for (int i = first; i < last; i += 8) {
                float part[8];
                #pragma unroll  // all loads are in flight before the first addition
                for (int k = 0; k < 8; ++k)
                    if (i + k < last) part[k] = rows[(begin + ordered_row[i + k]) * width + column];
                #pragma unroll
                for (int k = 0; k < 8; ++k) {
                    if (i + k >= last) break;
                    sum += part[k];
                    if (i + k + 1 == last || ordered_id[i + k + 1] != ordered_id[i + k]) {
                        atomicAdd(total + ordered_id[i + k] * width + column, sum);
                        sum = 0;
                    }
                }
            }
        }
        __syncthreads();
    }
}
""")
BLOCKS, THREADS = 528, 512
BATCH = 256
LARGE = 16 << 20
"""Bytes of the result from which rows travel while this rank's own rows are added up."""

symm.reserve(2 << 30)  # two buffers of the largest sizes


def add(rows: torch.Tensor, ids: torch.Tensor, total: torch.Tensor) -> None:
    """Adds row j of float32 rows to row ids[j] of total."""
    if rows.numel():
        blocks = min(-(-rows.shape[0] // BATCH), BLOCKS)
        kernels().add_rows[blocks, THREADS](rows.data_ptr(), ids.data_ptr(), total.data_ptr(), *rows.shape)


def solution(
    grad_output: torch.Tensor,
    seed_inverse_ids: torch.Tensor,
    seed_size: int,
    counts_sent: list[int],
    counts_received: list[int],
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """grad_output [sum(counts_sent), h], seed_inverse_ids [sum(counts_received)] int64 -> [seed_size, h].

    Arriving row j is added to row seed_inverse_ids[j] < 2^32; all other rows are zero. Position i of the counts and of
    the chunks stands for the peer (rank + i) mod W. Sums are kept in float32 or wider.
    """
    team = symm.team(group)
    rows, ids = grad_output.contiguous(), seed_inverse_ids.contiguous()
    if not (rows.is_cuda and rows.dtype is torch.float32):
        arrived = all_to_all_rows(rows, counts_sent, counts_received, team, rotated=True)
        wide = torch.promote_types(rows.dtype, torch.float32)
        total = torch.zeros(seed_size, rows.shape[1], dtype=wide, device=rows.device)
        return total.index_add_(0, ids, arrived.to(wide)).to(rows.dtype)
    kernels()  # compiled before any rank waits for another rank's kernel
    if team.world == 1 or 4 * seed_size * rows.shape[1] < LARGE:
        arrived = all_to_all_rows(rows, counts_sent, counts_received, team, rotated=True) if team.world > 1 else rows
        total = torch.zeros(seed_size, rows.shape[1], dtype=torch.float32, device=rows.device)
        add(arrived, ids, total)
        return total
    own = counts_sent[0]  # position 0 is this rank itself
    with beside():
        sent, received = [0, *counts_sent[1:]], [0, *counts_received[1:]]
        arrived = all_to_all_rows(rows[own:], sent, received, team, rotated=True)
    total = torch.zeros(seed_size, rows.shape[1], dtype=torch.float32, device=rows.device)
    add(rows[:own], ids[:own], total)
    join()
    add(arrived, ids[own:], total)
    return total
