// Stores this rank's columns at all ranks. x: rows of `width` elements, x_pitch elements apart; y: this rank's columns of the
// result, symmetric, rows y_pitch elements apart.
extern "C" __global__ void __launch_bounds__(512) push(Px px, const TYPE* x, TYPE* y, i64 rows, i64 width, i64 x_pitch,
        i64 y_pitch) {
    const u32 slot = blockIdx.x, turn = px_turn(px, slot);
    const int each = 16 / sizeof(TYPE);
    const i64 words = (width + each - 1) / each, all = rows * words, step = (i64)gridDim.x * blockDim.x;
    const int first = x == y;  // then this rank's own columns are in place already
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += 4 * step) {
        uint4 part[4];
        #pragma unroll  // all loads are in flight before the first store
        for (int k = 0; k < 4; ++k) {
            const i64 at = i + k * step;
            if (at < all) part[k] = px_ld_part(x + at / words * x_pitch, at % words * each, width);
        }
        for (int away = first; away < px.world; ++away) {
            TYPE* there = px_at(px, (px.rank + away) % px.world, y);
            #pragma unroll
            for (int k = 0; k < 4; ++k) {
                const i64 at = i + k * step;
                if (at < all) px_st_part(there + at / words * y_pitch, at % words * each, width, part[k]);
            }
        }
    }
    px_turn_barrier(px, slot, turn);  // all ranks' columns have arrived
}
// A barrier of the ranks' streams: what a rank has queued on its stream before the launch, copies too, is visible at all ranks
// after their launch.
extern "C" __global__ void barrier_of_all(Px px, u32 slot) {
    const u32 turn = px_turn(px, slot);
    __threadfence_system();
    px_turn_barrier(px, slot, turn);
}
