// The kernels of transfers.py. Two ranks move a block to each other in turns; a rank moves in the turns of its parity `mine`.
// A block has arrived when the last thread block of the mover has signalled, so that links carry data in one direction at a time.
PX_DI void signal_when_all_done(const Px& px, int peer, u32 epoch, u32* done) {
    bool last = gridDim.x == 1;
    if (last) __syncthreads();
    else last = px_last_block(done, gridDim.x);
    if (last && threadIdx.x == 0) px_signal(px, peer, 0, epoch);
}

PX_DI void await_signal(const Px& px, int peer, u32 epoch) {
    if (threadIdx.x == 0) px_wait(px, peer, 0, epoch);
    __syncthreads();
}

// Stores to a peer or loads from it, 16 bytes a thread.
extern "C" __global__ void __launch_bounds__(512)
move(Px px, int peer, int mine, int turns, u32 epoch, u32* done, char* to, const char* from, u64 bytes) {
    for (int turn = 0; turn < turns; ++turn) {
        if ((turn & 1) != mine) {
            await_signal(px, peer, epoch + turn);
            continue;
        }
        px_copy(to, from, bytes, blockIdx.x * (u64)blockDim.x + threadIdx.x, gridDim.x * (u64)blockDim.x);
        signal_when_all_done(px, peer, epoch + turn, done);
    }
}

// One thread of each thread block moves `tile` bytes at a time through shared memory, two in flight.
extern "C" __global__ void __launch_bounds__(32)
move_tma(Px px, int peer, int mine, int turns, u32 epoch, u32* done, char* to, const char* from, u64 bytes, u32 tile) {
    extern __shared__ __align__(128) char tiles[];
    __shared__ u64 bars[2];
    if (threadIdx.x == 0) {
        px_mbarrier_init(&bars[0], 1);
        px_mbarrier_init(&bars[1], 1);
    }
    __syncthreads();
    const u64 step = (u64)gridDim.x * tile;
    u32 moved = 0;  // tiles so far: the number gives the half of shared memory and the parity of its barrier
    for (int turn = 0; turn < turns; ++turn) {
        if ((turn & 1) != mine) {
            await_signal(px, peer, epoch + turn);
            continue;
        }
        if (threadIdx.x == 0) {
            u64 at = (u64)blockIdx.x * tile;
            u64 ahead = at;
            for (u32 next = moved; next < moved + 2 && ahead < bytes; ++next, ahead += step) {
                px_mbarrier_expect(&bars[next & 1], tile);
                px_bulk_load(tiles + (next & 1) * tile, from + ahead, tile, &bars[next & 1]);
            }
            for (; at < bytes; at += step, ++moved) {
                const u32 half = moved & 1;
                px_mbarrier_wait(&bars[half], (moved >> 1) & 1);
                px_bulk_store(to + at, tiles + half * tile, tile);
                px_bulk_commit();
                if (ahead < bytes) {
                    px_bulk_wait_read<0>();
                    px_mbarrier_expect(&bars[half], tile);
                    px_bulk_load(tiles + half * tile, from + ahead, tile, &bars[half]);
                    ahead += step;
                }
            }
            px_bulk_wait_done<0>();
        }
        signal_when_all_done(px, peer, epoch + turn, done);
    }
}
