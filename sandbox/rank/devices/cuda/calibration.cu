// The kernels of calibration.py.
extern "C" __global__ void __launch_bounds__(512) pull(char* to, const char* from, u64 bytes) {
    px_copy(to, from, bytes, blockIdx.x * (u64)blockDim.x + threadIdx.x, gridDim.x * (u64)blockDim.x);
}

// One thread a block moves 32 KiB at a time through shared memory, two in flight.
extern "C" __global__ void __launch_bounds__(32) pull_tma(char* to, const char* from, u64 bytes) {
    extern __shared__ __align__(128) char tiles[];
    __shared__ u64 bars[2];
    const u32 tile = 32768;
    if (threadIdx.x) return;
    px_mbarrier_init(&bars[0], 1);
    px_mbarrier_init(&bars[1], 1);
    const u64 step = (u64)gridDim.x * tile;
    u64 at = (u64)blockIdx.x * tile;
    u64 ahead = at;
    for (int slot = 0; slot < 2 && ahead < bytes; ++slot, ahead += step) {
        px_mbarrier_expect(&bars[slot], tile);
        px_bulk_load(tiles + slot * tile, from + ahead, tile, &bars[slot]);
    }
    for (u32 turn = 0; at < bytes; ++turn, at += step) {
        const int slot = turn & 1;
        px_mbarrier_wait(&bars[slot], (turn >> 1) & 1);
        px_bulk_store(to + at, tiles + slot * tile, tile);
        px_bulk_commit();
        if (ahead < bytes) {
            px_bulk_wait_read<0>();
            px_mbarrier_expect(&bars[slot], tile);
            px_bulk_load(tiles + slot * tile, from + ahead, tile, &bars[slot]);
            ahead += step;
        }
    }
    px_bulk_wait_done<0>();
}

extern "C" __global__ void barriers(Px px, u32 epoch, int times) {
    for (int i = 0; i < times; ++i) px_barrier(px, 0, epoch + i);
}

extern "C" __global__ void nothing(u32 word) {}
