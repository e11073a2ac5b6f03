"""__PROBLEM__

    __SIGNATURE__

CUDA C++ over NCCL's device API, for two or more GPUs. solution() is still the baseline. all_reduce() below it is a
whole kernel in one launch: stage, NCCL barrier, add. Put more of the problem into that launch.
Available: windows (nccl.window), ncclGetLsaPointer, ncclLsaBarrierSession, ncclLLA2ASession, and all of px.cuh; see
help(sandbox.kit.nccl).
"""

import torch

from sandbox.kit import nccl

# __BASELINE__


SOURCE = r"""
template <class T>
static __device__ void all_reduce(const ncclDevComm& dev, ncclWindow_t window, const T* x, T* y, i64 n) {
    ncclCoopCta block;
    // A barrier for each block number; the session ends with its scope, which all threads leave.
    ncclLsaBarrierSession<ncclCoopCta> barrier(block, dev, ncclTeamTagLsa(), blockIdx.x);
    const i64 first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    T* staged = (T*)ncclGetLocalPointer(window, 0);
    for (i64 i = first; i < n; i += step) staged[i] = x[i];
    barrier.sync(block, cuda::memory_order_acq_rel);  // the same block of every rank has staged the same elements
    for (i64 i = first; i < n; i += step) {
        float sum = 0;
        for (int p = 0; p < dev.lsaSize; ++p) sum += to_float(((T*)ncclGetLsaPointer(window, 0, p))[i]);
        y[i] = from_float<T>(sum);
    }
}
extern "C" __global__ void all_reduce_bf16(ncclDevComm dev, ncclWindow_t window, const bf16* x, bf16* y, i64 n) {
    all_reduce(dev, window, x, y, n);
}
extern "C" __global__ void all_reduce_f32(ncclDevComm dev, ncclWindow_t window, const float* x, float* y, i64 n) {
    all_reduce(dev, window, x, y, n);
}
"""
BLOCKS = 64
kernels = nccl.compile(SOURCE)
dev = nccl.devcomm(lsa_barriers=BLOCKS)


def all_reduce(x: torch.Tensor) -> torch.Tensor:
    """The sum over all ranks, added in float32 in rank order. The number of blocks must be the same on every
    rank."""
    x = x.contiguous()
    # Two windows used in turn make one barrier per call enough.
    staged = nccl.window(x.shape, x.dtype, tag="staged", ring=2)
    result = torch.empty_like(x)
    kernel = kernels.all_reduce_bf16 if x.dtype == torch.bfloat16 else kernels.all_reduce_f32
    kernel[BLOCKS, 512](dev, staged, x, result, x.numel())
    return result
