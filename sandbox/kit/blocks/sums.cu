// Writes factor times the sum of x over the ranks to y [n], which may be x. box: [W (senders)][pitch], symmetric, one of two
// buffers used in turn. A block adds the words that the same block of the other ranks has sent.
extern "C" __global__ void __launch_bounds__(512) add_up_over_ranks(Px px, const TYPE* x, TYPE* y, TYPE* box, i64 n, i64 pitch,
        float factor, u32 base) {
    const u32 slot = base + blockIdx.x, turn = px_turn(px, slot);
    const int each = 16 / sizeof(TYPE);
    const i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x, step = (i64)gridDim.x * blockDim.x;
    for (i64 i = first; i * each < n; i += 4 * step) {
        uint4 part[4];
        #pragma unroll  // all loads are in flight before the first store
        for (int k = 0; k < 4; ++k) part[k] = px_ld_part(x, (i + k * step) * each, n);
        for (int away = 1; away < px.world; ++away) {
            TYPE* there = px_at(px, (px.rank + away) % px.world, box) + px.rank * pitch;
            #pragma unroll
            for (int k = 0; k < 4; ++k) px_st_part(there, (i + k * step) * each, n, part[k]);
        }
    }
    px_turn_barrier(px, slot, turn);  // the other ranks' values of this block's words have arrived
    for (i64 i = first; i * each < n; i += step) {
        PxSum<TYPE> total;
        #pragma unroll
        for (int source = 0; source < PX_MAX_WORLD; ++source)  // in rank order, so that all ranks get the same bits
            if (source < px.world) total.add(px_ld_part(source == px.rank ? x : box + source * pitch, i * each, n));
        #pragma unroll
        for (int e = 0; e < each; ++e) total.sum[e] *= factor;
        px_st_part(y, i * each, n, total.rounded());
    }
}
